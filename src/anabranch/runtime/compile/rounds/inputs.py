"""How the rows of each source are packed: their keys, the columns that are stored, and the slots that these travel in.

All sources share the slots of the first exchange, so that a row is as wide as the widest source needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from anabranch.kernel.delta import Projection
from anabranch.plan.network import Network
from anabranch.plan.query import JoinInput, StreamSchema, joined_column, quote
from anabranch.runtime.compile.columns import Columns
from anabranch.runtime.compile.layout import InputLayout, Slot
from anabranch.runtime.compile.rounds.lanes import assign_slots
from anabranch.runtime.rows.carried import carried_type, check_carried, to_carried
from anabranch.runtime.rows.derived import Sources
from anabranch.runtime.rows.fallible import judge
from anabranch.runtime.rows.keys import canonical
from anabranch.runtime.rows.notes import NOTE

# A stored column: its name in the state, the expression that Spark evaluates for it, and its type on the way.
Wanted = tuple[str, str, T.DataType]


@dataclass(frozen=True, slots=True)
class LaidOutSource:
    """A source as it is packed: its layout, what is `stored` of its rows, and what is shown of `late` ones."""

    layout: InputLayout
    stored: Projection
    late: Projection


class Inputs:
    """Lays out the sources of a network, one after another; `slots` are those that they have needed so far."""

    def __init__(
        self,
        network: Network,
        columns: Columns,
        sources: Sources,
        streams: Mapping[str, StreamSchema],
        *,
        keep_late: bool,
    ) -> None:
        """Of a network; if late rows are kept, their keys are packed as well."""
        self._network = network
        self._columns = columns
        self._sources = sources
        self._streams = streams
        self._keep_late = keep_late
        self.slots: list[Slot] = []

    def packed(self) -> Iterator[LaidOutSource]:
        """All sources that are streams, in the order of the inputs that they feed."""
        for number, entry in enumerate(self._network.inputs):
            types = self._columns.frame(entry.entry.alias).schema if entry.entry.is_derived else None
            for nth, source in enumerate(entry.entry.sources):
                if source.block is None:
                    yield self._source(number, nth, types)

    def _source(self, number: int, nth: int, types: T.StructType | None) -> LaidOutSource:
        """The nth source of an input; `types` are those of a derived stream's columns."""
        (port,) = self._network.consumers(number)
        n, _ = self._network.ports[port]
        entry, timed = self._network.inputs[number].entry, self._network.inputs[number].timed
        source = entry.sources[nth]
        source_time = self._streams[source.stream].time
        rows = self._sources.frame(source, source_time, types)
        schema, group, key_types = rows.schema, self._columns.groups[n], self._columns.key_types[n]
        time = self._streams[entry.stream].time if timed else None
        keys = [to_carried(canonical(key, t), t) for key, t in zip(entry.key, key_types, strict=True)]
        judged = judge(rows, [*entry.conditions, *keys])
        arguments = () if group is None else group.arguments
        key_columns = self._key_columns(n, keys)
        wanted = [*key_columns, *_plain_columns(entry, rows)]
        if group is not None:
            wanted += [(name, text, t) for name, (text, t) in zip(group.names, arguments, strict=True)]
        slots = assign_slots(self.slots, [data_type for _, _, data_type in wanted])
        layout = InputLayout(
            leaf=number,
            port=port,
            label=_label(entry, nth),
            input=entry,
            source=source,
            source_time=source_time,
            types=types,
            conditions=tuple(judged[: len(entry.conditions)]),
            keys=tuple(judged[len(entry.conditions) :]),
            key_types=tuple(carried_type(t) for t in key_types),
            time=time,
            time_type=schema[time].dataType if time else None,
            values=tuple((slot, text) for slot, (_, text, _) in zip(slots, wanted, strict=True)),
            columns=tuple((column, schema[column].dataType) for column in entry.columns),
            key_columns=tuple((c, schema[c].dataType) for c in schema.names if quote(c) in entry.key),
            arguments=tuple(judge(rows, [text for text, _ in arguments])),
            grouped=group is not None,
            noted=NOTE in rows.columns,
        )
        stored = [(name, slot) for slot, (name, _, _) in zip(slots, wanted, strict=True)]
        if not self._columns.verified(n):
            stored = stored[len(key_columns) :]
        shown = _late_names(entry, schema.names, len(key_columns), [text for text, _ in arguments])
        late = Projection(tuple(zip(shown, slots, strict=True)))
        return LaidOutSource(layout, Projection(tuple(stored), timed), late)

    def _key_columns(self, n: int, keys: Sequence[str]) -> list[Wanted]:
        """The columns of the key, where the operator compares them or late rows show them."""
        if not (self._columns.verified(n) or self._keep_late):
            return []
        types = self._columns.key_types[n]
        return [(f"key.{k}", key, carried_type(t)) for k, (key, t) in enumerate(zip(keys, types, strict=True))]


def _plain_columns(entry: JoinInput, rows: DataFrame) -> Iterator[Wanted]:
    """The stream's columns that are stored as they are."""
    for column in entry.columns:
        data_type = rows.schema[column].dataType
        check_carried(joined_column(entry.alias, column), data_type)
        yield f"col.{column}", to_carried(quote(column), data_type), carried_type(data_type)


def _late_names(entry: JoinInput, columns: Sequence[str], keys: int, arguments: Sequence[str]) -> list[str]:
    """What the packed columns of a late row are called: key columns first, then plain ones, then arguments."""
    plain = {quote(column): column for column in columns}
    texts = [*entry.key[:keys], *map(quote, entry.columns), *arguments]
    return [plain.get(text, text) for text in texts]


def _label(entry: JoinInput, nth: int) -> str:
    """The input's alias; of several sources, also the stream and, if it occurs twice, its number."""
    stream = entry.sources[nth].stream
    if len(entry.sources) == 1:
        return entry.alias
    alike = [n for n, source in enumerate(entry.sources) if source.stream == stream]
    return f"{entry.alias} ({stream})" if len(alike) == 1 else f"{entry.alias} ({stream} {alike.index(nth) + 1})"
