"""The columns of a network: their types, and what they are called above joins and in the state.

Above a join a column is called `ALIAS.COLUMN` and the event time of input i is `ts:i`, which are names within one plan.
State outlives plans, so there names say where something stands, not what it is called: at the port of an input columns
are `col.COLUMN`; where rows are joined, `col.RANK.COLUMN` and `ts:RANK`, by the rank of the input among those that the
rows are made of, which does not depend on the order of joins. Keys that are stored are `key.0`, ...; what is
aggregated is `arg.0`, ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.checkpoint.settings import TIME_ZONE
from anabranch.errors import QueryError
from anabranch.kernel.expression import Fused
from anabranch.kernel.join.combinations import UNBOUNDED
from anabranch.plan.network import Column, Feed, Input, Network, Port
from anabranch.plan.query import Output, StreamSchema, all_of, joined_column, quote
from anabranch.plan.texts import is_name
from anabranch.runtime.compile.fuse import fuse
from anabranch.runtime.compile.group_types import GroupTypes, group_types
from anabranch.runtime.rows.carried import is_changed
from anabranch.runtime.rows.derived import Sources
from anabranch.runtime.rows.keys import check_class, key_type, must_verify, widest
from anabranch.runtime.rows.notes import HIDDEN
from anabranch.runtime.spark.internals import empty_frame
from anabranch.state.runs.run import TS


class Columns:
    """The types that Spark finds for the expressions of a network, and the names of its columns.

    `key_types` are per operator, and so are `groups`, None for joins. Operators `in_place` group rows by the key they
    are joined on; per column of that key, which of the group's it is. `fused` are the ports where conditions need not
    be Spark's, with these conditions; `arguments` those of aggregates that are computed where rows are joined.
    """

    def __init__(
        self,
        spark: SparkSession,
        network: Network,
        sources: Sources,
        streams: Mapping[str, StreamSchema],
    ) -> None:
        """Let Spark analyse keys and what is grouped."""
        self._spark = spark
        self._network = network
        self._streams = streams
        self._sources = sources
        self._frames: dict[str, DataFrame] = {}
        self.key_types: list[tuple[T.DataType, ...]] = []
        self.groups: list[GroupTypes | None] = []
        self.fused: dict[tuple[int, int], tuple[Fused, ...]] = {}
        self.arguments: dict[int, dict[str, Fused]] = {}
        self.in_place: dict[int, tuple[int, ...]] = {}
        for n, operator in enumerate(network.operators):
            if operator.grouping is None:
                self._frames_of(operator.terms)
                self.key_types.append(tuple(key_type(spark, terms, self._frames) for terms in operator.terms))
                self.groups.append(None)
                self._fuse(n)
                continue
            keys = self._grouped_in_place(n)
            if keys is not None:
                self.in_place[n] = keys
            types = group_types(self._grouped_rows(n), operator.grouping, in_place=n in self.in_place)
            self.key_types.append(types.keys)
            self.groups.append(types)
        joined_on = {terms for operator in network.operators for terms in operator.terms}
        for terms in network.classes:
            if terms not in joined_on and len(terms) > 2 and len({alias for alias, _ in terms}) > 1:
                self._frames_of([terms])
                check_class(spark, terms, self._frames)

    def _frames_of(self, classes: Iterable[tuple[Column, ...]]) -> None:
        """Collect the streams that some terms are over, by alias."""
        for alias in {alias for terms in classes for alias, _ in terms}:
            self.frame(alias)

    @property
    def time_zone(self) -> str:
        """The session's time zone."""
        return self._spark.conf.get(TIME_ZONE) or "UTC"

    def frame(self, alias: str) -> DataFrame:
        """The stream of an input; one that a sub-query makes without rows and hidden columns, but with its types."""
        if alias not in self._frames:
            entry = next(each for each in self._network.inputs if each.entry.alias == alias)
            if entry.entry.is_derived:
                self._frames[alias] = empty_frame(self._spark, self._derived(entry))
            else:
                self._frames[alias] = self._sources.registered[entry.entry.stream]
        return self._frames[alias]

    def feed_schema(self, feed: Feed) -> T.StructType:
        """The columns of the rows with which a block feeds an input, in their own types."""
        rows = empty_frame(self._spark, T.StructType(self.fields(feed.node)))
        kept = rows.where(all_of(feed.conditions) or "true")
        return kept.selectExpr(*(f"{output.expression} AS {quote(output.name)}" for output in feed.outputs)).schema

    def _derived(self, entry: Input) -> T.StructType:
        """The columns of an input that a sub-query makes, in types that those of all its sources can be brought to."""
        made = []
        for source, feed in zip(entry.entry.sources, entry.feeds, strict=True):
            if feed is not None:
                made.append(self.feed_schema(feed))
                continue
            rows = self._sources.frame(source, self._streams[source.stream].time)
            made.append(T.StructType([field for field in rows.schema if field.name not in HIDDEN]))
        fields = []
        for name in made[0].names:
            types = [schema[name].dataType for schema in made]
            same = len(set(types)) == 1
            fields.append(T.StructField(name, types[0] if same else self._common(entry.entry.alias, name, types)))
        return T.StructType(fields)

    def _common(self, alias: str, name: str, types: list[T.DataType]) -> T.DataType:
        try:
            return widest(self._spark, types)
        except PySparkException:
            listed = " and ".join(data_type.simpleString() for data_type in types)
            raise QueryError(f"UNION ALL in {alias}: its column {name} is {listed}; CAST it to one type") from None

    def type_of(self, column: Column) -> T.DataType:
        """The type of a column of an alias."""
        return self.frame(column[0]).schema[column[1]].dataType

    def keeps_hash(self, n: int, p: int) -> bool:
        """Whether what comes to a port of a join was joined on the same key below: it has its hash already."""
        operators = self._network.operators
        below = self._network.operator_of(operators[n].ports[p].node)
        return (
            below is not None
            and operators[n].grouping is None
            and operators[below].grouping is None
            and list(map(set, operators[n].terms)) == list(map(set, operators[below].terms))
        )

    def fields(self, node: int) -> list[T.StructField]:
        """The columns of an operator's results, by their names above it."""
        n = self._network.operator_of(node)
        assert n is not None, "an input gives what its stream has"
        group = self.groups[n]
        if group is not None:
            return group.results
        return [T.StructField(joined_column(*c), self.type_of(c)) for c in self._network.operators[n].columns]

    def result_name(self, name: str) -> str:
        """The name of an operator's column in its results. The prefix keeps it apart from the hash, the times and the
        key."""
        return name if name.startswith("ts:") else f"col.{name}"

    def is_user_operator(self, n: int) -> bool:
        """Whether an operator is a user's own: then its results have the names that the user gave them."""
        group = self.groups[n]
        return group is not None and group.result_schema is not None

    def verified(self, n: int) -> tuple[str, ...]:
        """The key columns that an operator stores: all those of a grouping, those of a join only if the hash may
        collide."""
        stored = self.groups[n] is not None or must_verify(self.key_types[n])
        return tuple(f"key.{k}" for k in range(len(self.key_types[n]))) if stored else ()

    def stored(self, port: Port, column: Column) -> str:
        """The name of a column in the state at a port."""
        if self._network.operator_of(port.node) is None:
            return f"col.{column[1]}"
        return f"col.{port.ranks.index(column[0])}.{column[1]}"

    def stored_time(self, port: Port, i: int) -> str:
        """The name of an input's event time in the state at a port."""
        if self._network.operator_of(port.node) is None:
            return TS
        return time_name(port.ranks.index(self._network.inputs[i].entry.alias))

    def timed(self, node: int) -> list[int]:
        """The inputs with an event time that the rows of a node are made of."""
        return [i for i in self._network.inputs_of(node) if self.has_time(i)]

    def is_timed(self, n: int) -> bool:
        """Whether the rows at an operator's ports have a time, if only in name."""
        return any(self._network.inputs[i].timed for i in self._network.inputs_of(len(self._network.inputs) + n))

    def has_time(self, i: int) -> bool:
        """Whether the event time of an input is read and known."""
        entry = self._network.inputs[i]
        return entry.timed and self._streams[entry.entry.stream].time is not None

    def window(self, i: int) -> int:
        """The window of an input, as the kernel has it."""
        window = self._network.inputs[i].entry.window
        return UNBOUNDED if window is None else min(window, UNBOUNDED)

    def windows(self, node: int) -> list[tuple[int, int]]:
        """The inputs of joined rows that have a window, with it."""
        return [(i, self.window(i)) for i in self.timed(node) if self._network.inputs[i].entry.window is not None]

    def _grouped_rows(self, n: int) -> DataFrame:
        """No rows, with the columns that a grouping is over."""
        node = self._network.operators[n].ports[0].node
        if self._network.operator_of(node) is None:
            return self.frame(self._network.inputs[node].entry.alias)
        return empty_frame(self._spark, T.StructType(self.fields(node)))

    def _fuse(self, n: int) -> None:
        """Find the ports of a join where what comes from a join on the same key can be selected by processors."""
        operator = self._network.operators[n]
        for p, port in enumerate(operator.ports):
            below = self._network.operator_of(port.node)
            if below is not None and port.conditions and self.keeps_hash(n, p):
                fused = self._fused(port.node, port.conditions)
                if fused is not None:
                    self.fused[n, p] = fused

    def fuse_first(self, node: int, texts: Sequence[str]) -> tuple[Fused, ...]:
        """Compile expressions over an operator's results for processors, up to the first one that only Spark can
        compute."""
        fields = self.fields(node)
        rows = empty_frame(self._spark, T.StructType(fields))
        made = fuse(rows, texts, {field.name: self.result_name(field.name) for field in fields})
        return tuple(fused for fused in takewhile(lambda one: one is not None, made) if fused is not None)

    def _fused(self, node: int, texts: Sequence[str]) -> tuple[Fused, ...] | None:
        """Compile expressions over an operator's results for processors; None if only Spark can compute one of them."""
        fused = self.fuse_first(node, texts)
        return fused if len(fused) == len(texts) else None

    def types_of(self, node: int, outputs: Sequence[Output]) -> list[T.StructField]:
        """The columns that outputs compute from an operator's results."""
        rows = empty_frame(self._spark, T.StructType(self.fields(node)))
        return list(rows.selectExpr(*(f"{output.expression} AS {quote(output.name)}" for output in outputs)).schema)

    def _grouped_in_place(self, n: int) -> tuple[int, ...] | None:
        """Whether what is joined is grouped by the very key it is joined on: it is where it is needed already.

        Per column of the join's key, which of the group's it is; None if it is not so.
        Keys have to be plain columns, and neither arguments nor conditions anything that only Spark can compute.
        Floating point keys are not, since they are joined and grouped in a canonical form.
        """
        operator = self._network.operators[n]
        grouping, (port,) = operator.grouping, operator.ports
        below = self._network.operator_of(port.node)
        if grouping is None or grouping.applied is not None or below is None:
            return None
        join = self._network.operators[below]
        columns = {quote(joined_column(*column)): column for column in join.columns}
        of_key = {column: k for k, terms in enumerate(join.terms) for column in _plain_terms(terms)}
        keys = [of_key.get(columns[key]) if key in columns else None for key in grouping.keys]
        if None in keys or sorted(k for k in keys if k is not None) != list(range(len(join.terms))):
            return None
        arguments = [call.argument for call in grouping.calls if call.argument is not None]
        plain = [*grouping.keys, *(text for text in arguments if text in columns)]
        types = [self.type_of(columns[text]) for text in plain]
        if any(isinstance(data_type, T.FractionalType) for data_type in types[: len(keys)]):
            return None
        computed = list(dict.fromkeys(text for text in arguments if text not in columns))
        fused = self._fused(port.node, [*port.conditions, *computed])
        if fused is None or any(is_changed(data_type) for data_type in types):
            return None
        if port.conditions:
            self.fused[n, 0] = fused[: len(port.conditions)]
        self.arguments[n] = dict(zip(computed, fused[len(port.conditions) :], strict=True))
        return tuple(keys.index(k) for k in range(len(keys)))


def time_name(i: int) -> str:
    """The column with the event time of one of the rows that a joined one is made of."""
    return f"ts:{i}"


def _plain_terms(terms: Sequence[Column]) -> Iterator[Column]:
    """Alias and column of the terms of a key that are columns."""
    for alias, text in terms:
        if is_name(text):
            yield alias, text[1:-1].replace("``", "`")
