"""The plan of a query as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.plan.logical import JoinInput, JoinQuery, StreamSchema
from anabranch.plan.watermark import InputTime, can_expire


def explain_join(
    query: JoinQuery,
    streams: Mapping[str, StreamSchema],
    *,
    key_types: Sequence[str],
    groups: int,
    processors: int,
) -> str:
    """The plan, drawn from the answer down to the streams."""
    keys = ["=".join(f"{entry.alias}.{entry.key[n]}" for entry in query.inputs) for n in range(len(key_types))]
    key = " AND ".join(f"{text} ({data_type})" for text, data_type in zip(keys, key_types, strict=True))
    lines = [f"Project [{', '.join(output.name for output in query.outputs)}]"]
    if query.residual:
        lines.append(f"Filter [{query.residual}]")
    lines.append(f"MultiwayJoin {len(query.inputs)} inputs on {key}")
    lines.append(f"Exchange by key hash: {groups} partition groups on {processors} processor(s), 1 round")
    indent = ["   " * n + ("" if n == 0 else "+- ") + line for n, line in enumerate(lines)]
    times = [InputTime(entry.window, streams[entry.stream].lateness) for entry in query.inputs]
    depth = "   " * len(lines)
    for i, entry in enumerate(query.inputs):
        indent.append(f"{depth}+- {_explain_input(entry, streams[entry.stream], can_expire(times, i))}")
    return "\n".join(indent)


def _explain_input(entry: JoinInput, stream: StreamSchema, expires: bool) -> str:
    window = "unbounded" if entry.window is None else f"RANGE {_seconds(entry.window)}"
    parts = [f"Stream {entry.stream}" + (f" AS {entry.alias}" if entry.alias != entry.stream else "")]
    parts.append(f"[{window}]")
    if stream.time:
        lateness = "never late" if stream.lateness is None else f"lateness {_seconds(stream.lateness)}"
        parts.append(f"time {stream.time} ({lateness})")
    if entry.predicate:
        parts.append(f"where {entry.predicate}")
    parts.append(f"keeps [{', '.join(entry.columns)}]")
    parts.append("purged behind the window" if expires else "never purged")
    return ", ".join(parts)


def _seconds(micros: int) -> str:
    return f"{micros / 1_000_000:g} s"
