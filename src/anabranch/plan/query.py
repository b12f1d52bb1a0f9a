"""A continuous query: what CQL text is bound to (`LogicalQuery`), and that with its joins in one order.

A `LogicalQuery` has inputs, equalities, conditions and outputs, and no word of join order;
`plan/join_order` arranges it for any shape of its joins. What it makes of it is a `ContinuousQuery`.

A `ContinuousQuery` joins stream occurrences (`JoinInput`, one per alias in FROM) by `JoinOperator`s, each on a key that
all its parts share, with selections pushed below the joins or between them; it may group what comes out by a `Grouping`
with aggregates over a window; and it has a projection above. A query over one stream has no join, but a grouping.

Expressions are Spark SQL text, because Spark evaluates them. Below the joins (`JoinInput.key`, `.conditions`) they
refer to the stream's columns by bare name; above one (`JoinOperator.conditions`, `Output.expression`, the keys of what
it produced) a column of an alias is one identifier that contains the dot: `` `A.v` ``. Above a grouping there are only
its keys and aggregates, `` `group.0` `` and `` `agg.0` ``.

Times (windows, lateness) are whole microseconds; `None` means unbounded, or never late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_INPUTS = 8
# No column of a user's has a name that begins like this; what travels beside them does.
RESERVED = ":"
# The column with the event time of the rows that a sub-query makes.
DERIVED_TIME = ":time"


@dataclass(frozen=True, slots=True)
class AppliedOperator:
    """A user's own operator: it keeps `columns` of the rows of a stream. Its results have the columns of
    `result_ddl`."""

    name: str
    operator: object
    columns: tuple[str, ...]
    result_ddl: str


@dataclass(frozen=True, slots=True)
class Application:
    """The making of a stream out of a user's operator: it is applied `over` another stream, partitioned by `key`.

    The operator's rows are kept for `retention` of event time; None is for ever.
    """

    over: str
    key: tuple[str, ...]
    retention: int | None
    applied: AppliedOperator


@dataclass(frozen=True, slots=True)
class StreamSchema:
    """What the binder has to know of a registered stream, or of the results of a user's operator (`application`)."""

    name: str
    columns: tuple[str, ...]
    time: str | None = None
    lateness: int | None = None
    application: Application | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the answer, or of a sub-query: its name and the expression that computes it."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Selection:
    """SELECT outputs WHERE all conditions, of single rows."""

    conditions: tuple[str, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """What feeds an input: a registered stream, or the answer of a sub-query (`block`), and the selections that rows
    pass."""

    stream: str
    steps: tuple[Selection, ...] = ()
    block: ContinuousQuery | None = None


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One occurrence of a stream in FROM; a row has to meet all `conditions`.

    `key` is what it is joined on first. `columns` are those that are needed after that, in the stream's order. If the
    stream is made by a sub-query, it has `sources` of its own.
    """

    alias: str
    stream: str
    window: int | None
    key: tuple[str, ...]
    conditions: tuple[str, ...]
    columns: tuple[str, ...]
    sources: tuple[Source, ...] = ()

    @property
    def is_derived(self) -> bool:
        """Whether a sub-query makes it."""
        return any(source.steps for source in self.sources)

    @property
    def predicate(self) -> str | None:
        """All conditions as one."""
        return all_of(self.conditions)


@dataclass(frozen=True, slots=True)
class Term:
    """An expression over one alias: its text below the join (which identifies it) and above it, and the columns it
    reads."""

    alias: str
    below: str
    above: str = field(compare=False)
    columns: frozenset[str] = field(compare=False, default=frozenset())


Equality = tuple[Term, Term]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on joined rows. `reads` are its columns, as pairs of alias and column; a constant condition has
    none."""

    text: str
    reads: tuple[tuple[str, str], ...]

    @property
    def aliases(self) -> frozenset[str]:
        """The aliases whose rows have to be joined before it can be decided."""
        return frozenset(alias for alias, _ in self.reads)


@dataclass(frozen=True, slots=True)
class LogicalInput:
    """One occurrence of a stream in FROM, with all its columns; a row has to meet all `conditions`, which are over it
    alone."""

    alias: str
    stream: str
    window: int | None
    conditions: tuple[str, ...]
    columns: tuple[str, ...]
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class LogicalQuery:
    """A join of several streams without an order: equalities, other conditions on joined rows, and outputs.

    `needed` are the columns that the answer, or what is grouped, reads of joined rows.
    """

    text: str
    inputs: tuple[LogicalInput, ...]
    equalities: tuple[Equality, ...]
    conditions: tuple[Condition, ...]
    needed: tuple[tuple[str, str], ...]
    outputs: tuple[Output, ...]
    grouping: Grouping | None = None
    derived: tuple[StreamSchema, ...] = ()

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases in the order of FROM, which numbers of inputs in shapes refer to."""
        return tuple(entry.alias for entry in self.inputs)


@dataclass(frozen=True, slots=True)
class JoinOperator:
    """A join of two or more parts on one key, an m-way one where there are more.

    Parts are numbered: the query's inputs first, then its operators. `classes` are the columns of the key, as numbers
    in `ContinuousQuery.classes`; `keys` has their expressions for each part. A result has to meet all `conditions`, and
    carries `columns` (alias and column): all that its conditions and what stands above need.
    """

    parts: tuple[int, ...]
    classes: tuple[int, ...]
    keys: tuple[tuple[str, ...], ...]
    conditions: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate function of an expression; of rows if there is none, as in COUNT(*)."""

    function: str
    argument: str | None


@dataclass(frozen=True, slots=True)
class Grouping:
    """GROUP BY `keys` with aggregates, or DISTINCT `keys`, over windows that end at each tuple.

    Expressions are over a stream's columns if there is one input, else over joined ones. A window is that of the
    inputs, or the last `rows` tuples of a group. A group is answered at every tuple, or `once` in a batch. An answer
    has to meet all `conditions` (HAVING). What is `applied` to groups instead of aggregates is an operator.
    """

    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    conditions: tuple[str, ...] = ()
    rows: int | None = None
    distinct: bool = False
    once: bool = False
    applied: AppliedOperator | None = None


@dataclass(frozen=True, slots=True)
class ContinuousQuery:
    """A bound continuous query. `text` is what the user wrote; the last operator is the root.

    `classes` are what the equalities of the query make equal: terms as pairs of an alias and an expression below the
    joins. `derived` are the streams that sub-queries make. With UNION ALL the answers of others are `united` with its
    own. `logical` is what was arranged, None where there is no join. `cluster` is where its operators are wanted, None
    if that is left to the engine.
    """

    text: str
    inputs: tuple[JoinInput, ...]
    classes: tuple[tuple[tuple[str, str], ...], ...]
    operators: tuple[JoinOperator, ...]
    outputs: tuple[Output, ...]
    grouping: Grouping | None = None
    derived: tuple[StreamSchema, ...] = ()
    united: tuple[ContinuousQuery, ...] = ()
    logical: LogicalQuery | None = field(default=None, compare=False, repr=False)
    cluster: str | None = field(default=None, compare=False)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions on rows of the last operator or the grouping; those that meet them are the answer."""
        return self.operators[-1].conditions if self.grouping is None else self.grouping.conditions

    @property
    def residual(self) -> str | None:
        """All conditions on the answer as one."""
        return all_of(self.conditions)

    @property
    def root(self) -> int:
        """The number of the part that holds all inputs."""
        return len(self.inputs) + len(self.operators) - 1

    def inputs_of(self, part: int) -> tuple[int, ...]:
        """The inputs that a part holds, ascending."""
        if part < len(self.inputs):
            return (part,)
        operator = self.operators[part - len(self.inputs)]
        return tuple(sorted(n for below in operator.parts for n in self.inputs_of(below)))


def all_of(conditions: Sequence[str]) -> str | None:
    """The conjunction of the conditions, or None if there are none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return " AND ".join(f"({condition})" for condition in conditions)


def joined_column(alias: str, column: str) -> str:
    """The name that a column of an alias has above the join."""
    return f"{alias}.{column}"


def group_column(n: int) -> str:
    """The name that a key has above a grouping."""
    return f"group.{n}"


def aggregate_column(n: int) -> str:
    """The name that an aggregate has above a grouping."""
    return f"agg.{n}"


def quote(name: str) -> str:
    """A name as one Spark SQL identifier, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
