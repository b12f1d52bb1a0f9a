"""The streams in FROM, and what a name means among them.

Names are matched as Spark matches them, without regard to case, except that an exact spelling wins where a
stream has columns that differ only by case. What comes out is always the registered spelling. `A.x` is
column x of alias A if there is one, else field x of a column A. A JOIN ... USING (k) makes k one column:
unqualified it is that of the leftmost stream, and `*` shows it once and first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.errors import QueryError, did_you_mean
from anabranch.language.clauses import FromItem
from anabranch.language.source import SourceText, Span
from anabranch.language.windows import RowsWindow
from anabranch.plan.query import MAX_INPUTS, StreamSchema, joined_column, quote


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of an alias, both in their registered spelling.

    As an argument of `struct` it has to be `named`, so that the field is called as in Spark, and not as the column is
    called above the join.
    """

    alias: str
    column: str
    named: str | None = None

    @property
    def below(self) -> str:
        """Its identifier below the join."""
        return quote(self.column)

    @property
    def above(self) -> str:
        """Its identifier above the join."""
        return quote(joined_column(self.alias, self.column))

    def called(self, text: str) -> str:
        """A text that stands for the column, with the name that it has to have."""
        return text if self.named is None else f"{text} AS {quote(self.named)}"


@dataclass(frozen=True, slots=True)
class Scope:
    """The aliases with their streams, the columns of `*`, and the pairs that USING made equal."""

    source: SourceText
    streams: Mapping[str, StreamSchema]
    star: tuple[ColumnRef, ...]
    merged: tuple[tuple[ColumnRef, ColumnRef], ...]

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases in the order of FROM."""
        return tuple(self.streams)

    def alias(self, name: str) -> str | None:
        """The alias that the name stands for."""
        return match(name, self.streams)

    def resolve(self, parts: list[str], span: Span) -> tuple[ColumnRef, int]:
        """The column that a dotted name starts with and how many parts name it; the rest are fields."""
        alias = self.alias(parts[0]) if len(parts) > 1 else None
        if alias is not None:
            column = match(parts[1], self.streams[alias].columns)
            if column is not None:
                return ColumnRef(alias, column), 2
        refs = self._unqualified(parts[0])
        if len(refs) == 1:
            return refs[0], 1
        if refs:
            where = " and ".join(ref.alias for ref in refs)
            raise self.source.error(f"column {parts[0]!r} is ambiguous: in {where}; qualify it", span)
        raise self._unknown(parts, alias, span)

    def _unqualified(self, name: str) -> list[ColumnRef]:
        hidden = {right for _, right in self.merged}
        refs = [
            ColumnRef(alias, column)
            for alias, stream in self.streams.items()
            if (column := match(name, stream.columns)) is not None
        ]
        return [ref for ref in refs if ref not in hidden]

    def _unknown(self, parts: list[str], alias: str | None, span: Span) -> QueryError:
        if alias is not None:
            hint = did_you_mean(parts[1], self.streams[alias].columns)
            return self.source.error(f"unknown column {parts[1]!r} in {alias}; {hint}", span)
        columns = {column for stream in self.streams.values() for column in stream.columns}
        if len(parts) == 1:
            return self.source.error(f"unknown column {parts[0]!r}; {did_you_mean(parts[0], columns)}", span)
        aliases = [name for name, stream in self.streams.items() if match(parts[0], [stream.name])]
        if aliases:
            message = f"stream {parts[0]!r} is known here as {' and '.join(aliases)}; write {aliases[0]}"
            return self.source.error(message, span)
        hint = did_you_mean(parts[0], {*self.streams, *columns})
        return self.source.error(f"unknown alias {parts[0]!r}; {hint}", span)


def open_scope(
    source: SourceText, items: tuple[FromItem, ...], registered: Mapping[str, StreamSchema], *, single: bool = False
) -> Scope:
    """The scope of a FROM clause over the registered streams; one of them alone only if `single`."""
    streams: dict[str, StreamSchema] = {}
    for item in items:
        stream = _stream(source, item, registered)
        taken = match(item.alias, streams)
        if taken is not None and (item.has_alias or streams[taken].name != stream.name):
            raise source.error(f"the alias {item.alias!r} is used twice; give each stream its own", item.span)
        if taken is not None:
            hint = f"give each an alias, as in {item.stream} AS a, {item.stream} AS b"
            raise source.error(f"the stream {item.stream!r} is in FROM twice; {hint}", item.span)
        if item.window is not None and stream.time is None:
            what = f"not all streams in {item.alias!r} have" if item.branches else f"the stream {stream.name!r} has no"
            message = f"{what} {'an ' if item.branches else ''}event time for a window; register it with time="
            raise source.error(message, item.window_span or item.span)
        if isinstance(item.window, RowsWindow) and not single:
            raise source.unsupported("a window of ROWS without GROUP BY", item.window_span or item.span)
        spelling = match(item.alias, [stream.name]) if not item.has_alias else None
        streams[spelling or item.alias] = stream
    _check_count(source, len(items), single)
    _check_joined_names(streams)
    star, merged = _merge(source, items, streams)
    return Scope(source, streams, star, merged)


def match(name: str, names: Mapping[str, object] | list[str] | tuple[str, ...]) -> str | None:
    """The registered spelling of a name among `names`: the exact one, else the first that differs only by case."""
    if name in names:
        return name
    return next((candidate for candidate in names if candidate.lower() == name.lower()), None)


def _stream(source: SourceText, item: FromItem, registered: Mapping[str, StreamSchema]) -> StreamSchema:
    name = match(item.stream, registered)
    if name is None:
        raise source.error(f"unknown stream {item.stream!r}; {did_you_mean(item.stream, registered)}", item.span)
    return registered[name]


def _check_count(source: SourceText, count: int, single: bool) -> None:
    if count < 2 and not single:
        hint = "join it with another one or group it, or use Spark itself"
        raise source.unsupported("a query over one stream without GROUP BY or DISTINCT", hint=hint)
    if count > MAX_INPUTS:
        raise source.unsupported(f"a join of {count} streams", hint=f"at most {MAX_INPUTS} are")


def _check_joined_names(streams: Mapping[str, StreamSchema]) -> None:
    """Above the join a column is one name, alias.column; dots in aliases could make two columns one."""
    owner: dict[str, str] = {}
    for alias, stream in streams.items():
        for column in stream.columns:
            name = joined_column(alias, column)
            if owner.setdefault(name, alias) != alias:
                both = f"{owner[name]!r} and {alias!r}"
                raise QueryError(f"{name!r} is a column of both {both}; change an alias")


def _merge(
    source: SourceText, items: tuple[FromItem, ...], streams: Mapping[str, StreamSchema]
) -> tuple[tuple[ColumnRef, ...], tuple[tuple[ColumnRef, ColumnRef], ...]]:
    """The columns of `*`, and the pairs that USING made equal. A comma begins a new group of joined streams."""
    done: list[ColumnRef] = []
    group: list[ColumnRef] = []
    merged: list[tuple[ColumnRef, ColumnRef]] = []
    for item, (alias, stream) in zip(items, streams.items(), strict=True):
        if item.after_comma:
            done, group = done + group, []
        columns = [ColumnRef(alias, column) for column in stream.columns]
        keys = [_using(source, name, group, span) for name, span in item.using]
        dropped = [_using(source, name, columns, span) for name, span in item.using]
        group = keys + [ref for ref in group if ref not in keys]
        group += [ref for ref in columns if ref not in dropped]
        merged += zip(keys, dropped, strict=True)
    return tuple(done + group), tuple(merged)


def _using(source: SourceText, name: str, refs: list[ColumnRef], span: Span) -> ColumnRef:
    exact = [ref for ref in refs if ref.column == name]
    matching = exact or [ref for ref in refs if ref.column.lower() == name.lower()]
    if not matching:
        hint = did_you_mean(name, {ref.column for ref in refs})
        raise source.error(f"unknown column {name!r} in USING; {hint}", span)
    if len(matching) > 1:
        where = " and ".join(ref.alias for ref in matching)
        raise source.error(f"column {name!r} in USING is ambiguous: in {where}; write ON instead", span)
    return matching[0]
