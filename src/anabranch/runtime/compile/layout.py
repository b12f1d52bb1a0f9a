"""The rounds layout: how the rows of several streams share one shuffle, in typed slots, and what inputs keep in them.

It may change between two batches; what lives as long as Spark's streaming query is the packed layout (`packed`).

All inputs of a join travel through one exchange, so they need one schema: the input's number, the key hash, the
event time (where the query has a window), a reject note (where a row can be bad), and slots. A slot has a type and
is used by every input that has a column of that type left to place, so the row is as wide as its widest input.

A plan of several operators has further exchanges, for what they produce: the same, but that processors fill the slots.
The columns of a key are stored only where its hash does not determine it (`keys`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import types as T

from anabranch.kernel.delta import Projection
from anabranch.kernel.expression import Fused
from anabranch.plan.allocation import Allocation
from anabranch.plan.query import JoinInput, Output, Source, all_of
from anabranch.plan.watermark import BlockTime, PortTime, SourceTime
from anabranch.processor.tasks import ProcessorPlan
from anabranch.runtime.rows.fallible import Judged
from anabranch.runtime.rows.keys import INJECTIVE


@dataclass(frozen=True, slots=True)
class Slot:
    """A column of the packed row."""

    name: str
    type: T.DataType


@dataclass(frozen=True, slots=True)
class InputLayout:
    """How rows of one source become rows of an input: the expressions below the join, and the slots of their values.

    `leaf` is the number of the input, `port` where its rows go, `label` what the source is called where rows are
    counted. `source_time` is the event time of the source's stream. `types` are those of a derived stream's columns.
    `time` is the column with the event time of the rows as they are joined.

    `keys` are canonical and in carried form, as hashed and compared, and so are `key_types`; `values` are pairs of
    (slot, Spark SQL expression over the stream's columns), some of them aggregates' `arguments`. `columns` are those of
    the stream's columns that are carried as they are, with their own types, and `key_columns` those that are a key by
    themselves. A row with a null in its key counts only if it is `grouped`. A sub-query may have `noted` that a row is
    bad.
    """

    leaf: int
    port: int
    label: str
    input: JoinInput
    source: Source
    source_time: str | None
    types: T.StructType | None
    conditions: tuple[Judged, ...]
    keys: tuple[Judged, ...]
    key_types: tuple[T.DataType, ...]
    time: str | None
    time_type: T.DataType | None
    values: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, T.DataType], ...]
    key_columns: tuple[tuple[str, T.DataType], ...] = ()
    arguments: tuple[Judged, ...] = ()
    grouped: bool = False
    noted: bool = False


@dataclass(frozen=True, slots=True)
class Carried:
    """A column that travels through an exchange: its name above the joins, its own type, and its slot."""

    name: str
    type: T.DataType
    slot: str


@dataclass(frozen=True, slots=True)
class Lane:
    """Results of an operator that travel to a port: what they have to meet, their key, and their columns.

    `tag` is what rows are told from others by on the way. `hashed` is what their hash is of: keys, canonical and in
    carried form, over the names of the columns; nothing if it is among what is passed on. `passed` are pairs of a slot
    and a column that results of a join have beside those that it gives: the hash, and the key if it is stored.
    `computed` are pairs of a slot and what Spark puts there: keys, if they are stored, and expressions. `stored` are
    state columns and the slots they come in.
    """

    tag: int
    port: int
    node: int
    conditions: tuple[str, ...]
    hashed: tuple[str, ...]
    computed: tuple[tuple[str, str], ...]
    columns: tuple[Carried, ...]
    stored: Projection
    passed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """The rows that travel between two rounds: processors yield the columns `yielded`, and Spark puts them into
    `slots`."""

    lanes: tuple[Lane, ...]
    slots: tuple[Slot, ...]
    yielded: T.StructType


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where rows of a node leave as an answer, or a part of one: what is `picked` of them, as pairs of a name and the
    name it has there.

    Processors select what meets the `fused` conditions, and have `computed` the columns of the answer where they can.
    What is left to Spark are the `conditions` and the `outputs`, which are None where the answer is complete.
    `result_schema` is what processors give, in carried form, and `joined_schema` the same in the columns' own types.
    """

    node: int
    picked: tuple[tuple[str, str], ...]
    fused: tuple[Fused, ...]
    computed: tuple[tuple[str, Fused], ...]
    conditions: tuple[str, ...]
    outputs: tuple[Output, ...] | None
    result_schema: T.StructType
    joined_schema: T.StructType

    @property
    def residual(self) -> str | None:
        """All conditions as one."""
        return all_of(self.conditions)


@dataclass(frozen=True, slots=True)
class AnswerLayout:
    """The answer to a query: all rows that leave by some outlets."""

    name: str
    outlets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """All that packing, processors and answers need to know of a compiled plan.

    `inputs` are the streams that feed the network's inputs, and `sources` their times; `blocks` are the times of what
    blocks feed them with. `exchanges` are those after the first. `key_types`, `rounds` and `argument_types` are per
    operator, `ports` are the times of all ports. `allocation` says for which placements the rounds were compiled; after
    that groups move. Operators that run fused and stay together are a family, `kindred` are those
    that would be one if they were placed alike.
    """

    inputs: tuple[InputLayout, ...]
    slots: tuple[Slot, ...]
    exchanges: tuple[Exchange, ...]
    key_types: tuple[tuple[T.DataType, ...], ...]
    rounds: tuple[int, ...]
    allocation: Allocation
    kindred: tuple[int, ...]
    sources: tuple[SourceTime, ...]
    blocks: tuple[BlockTime, ...]
    ports: tuple[PortTime, ...]
    timed: bool
    processor: ProcessorPlan
    outlets: tuple[Outlet, ...]
    answers: tuple[AnswerLayout, ...]
    argument_types: tuple[tuple[T.DataType, ...], ...] = ()

    @property
    def families(self) -> tuple[int, ...]:
        """The family of each operator: those that run fused, by the number of the first."""
        assert self.allocation.families is not None, "the layout has been compiled"
        return self.allocation.families

    @property
    def groupings(self) -> int:
        """How many operators group."""
        return len(self.processor.groupings)

    @property
    def narrow(self) -> bool:
        """Whether every packed row has the same small size. Reject notes vary too, but a bad row is rare."""
        slots = (*self.slots, *(slot for exchange in self.exchanges for slot in exchange.slots))
        return all(isinstance(slot.type, (*INJECTIVE, T.DecimalType)) for slot in slots)
