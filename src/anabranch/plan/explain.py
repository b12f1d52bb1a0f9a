"""The plan of a query as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.plan.logical import ContinuousQuery, Grouping, JoinInput, JoinOperator, Source, StreamSchema, all_of
from anabranch.plan.watermark import can_expire, input_times


def explain_join(
    query: ContinuousQuery,
    streams: Mapping[str, StreamSchema],
    *,
    key_types: Sequence[Sequence[str]],
    rounds: Sequence[int],
    groups: int,
    processors: int,
) -> str:
    """The plan, drawn from the answer down to the streams; `key_types` and `rounds` are per operator."""
    leaves = len(query.inputs)
    times = input_times(query, streams)
    lines = [f"Project [{', '.join(output.name for output in query.outputs)}]"]
    if query.residual is not None and query.grouping is not None:
        lines.append(f"Filter [{query.residual}]")
    if query.grouping is not None:
        lines.append(f"{_explain_grouping(query.grouping, key_types[-1])}, round {rounds[-1] + 1}")

    def draw(part: int, depth: int) -> None:
        def add(text: str) -> None:
            lines.append(f"{'   ' * depth}+- {text}")

        if part < leaves:
            entry = query.inputs[part]
            rows = query.grouping.rows if query.grouping is not None else None
            add(_explain_input(entry, streams[entry.stream], rows, can_expire(times, part)))
            depth += 1
            for source in entry.sources if entry.is_derived else ():
                add(_explain_source(source, streams[source.stream]))
            return
        operator = query.operators[part - leaves]
        if operator.conditions:
            add(f"Filter [{all_of(operator.conditions)}]")
            depth += 1
        add(f"{_explain_operator(query, operator, key_types[part - leaves])}, round {rounds[part - leaves] + 1}")
        for below in operator.parts:
            draw(below, depth + 1)

    draw(query.root, 0)
    needed = "1 round" if max(rounds) == 0 else f"{max(rounds) + 1} rounds"
    lines.append(f"{groups} partition groups on {processors} processor(s), exchanged by key hash in {needed}")
    return "\n".join(lines)


def _explain_operator(query: ContinuousQuery, operator: JoinOperator, key_types: Sequence[str]) -> str:
    def shown(port: int, n: int) -> str:
        part, text = operator.parts[port], operator.keys[port][n]
        return f"{query.inputs[part].alias}.{text}" if part < len(query.inputs) else text

    columns = ["=".join(shown(port, n) for port in range(len(operator.parts))) for n in range(len(key_types))]
    key = " AND ".join(f"{text} ({data_type})" for text, data_type in zip(columns, key_types, strict=True))
    kind = "BinaryJoin" if len(operator.parts) == 2 else f"MultiwayJoin of {len(operator.parts)}"
    return f"{kind} on {key}"


def _explain_grouping(grouping: Grouping, key_types: Sequence[str]) -> str:
    keys = ", ".join(f"{key} ({data_type})" for key, data_type in zip(grouping.keys, key_types, strict=True))
    if grouping.distinct:
        return f"Distinct [{keys}]"
    calls = ", ".join(f"{call.function.upper()}({call.argument or '*'})" for call in grouping.calls)
    window = "" if grouping.rows is None else f" over the last {grouping.rows} rows of each"
    answered = "once per batch" if grouping.once else "for every tuple"
    return f"Aggregate [{calls}] by {keys}{window}, answered {answered}"


def _explain_source(source: Source, stream: StreamSchema) -> str:
    """A registered stream, and what a sub-query makes of its rows, last selection first."""
    steps = []
    for selection in reversed(source.steps):
        shown = ", ".join(f"{output.expression} AS {output.name}" for output in selection.outputs)
        kept = all_of(selection.conditions)
        steps.append(f"Select [{shown}]" + (f" where {kept}" if kept else ""))
    return ", ".join([f"{' of '.join(steps)} of Stream {stream.name}", *_explain_time(stream)])


def _explain_time(stream: StreamSchema) -> list[str]:
    if stream.time is None:
        return []
    lateness = "never late" if stream.lateness is None else f"lateness {_seconds(stream.lateness)}"
    return [f"time {stream.time} ({lateness})"]


def _explain_input(entry: JoinInput, stream: StreamSchema, rows: int | None, expires: bool) -> str:
    window = "unbounded" if entry.window is None else f"RANGE {_seconds(entry.window)}"
    window = window if rows is None else f"ROWS {rows}"
    if entry.is_derived:
        parts = [f"{'Union' if len(entry.sources) > 1 else 'Sub-query'} {entry.alias}", f"[{window}]"]
    else:
        named = f" AS {entry.alias}" if entry.alias != entry.stream else ""
        parts = [f"Stream {entry.stream}{named}", f"[{window}]", *_explain_time(stream)]
    if entry.predicate:
        parts.append(f"where {entry.predicate}")
    if entry.columns:
        parts.append(f"keeps [{', '.join(entry.columns)}]")
    parts.append("purged behind the window" if expires or rows is not None else "never purged")
    return ", ".join(parts)


def _seconds(micros: int) -> str:
    return f"{micros / 1_000_000:g} s"
