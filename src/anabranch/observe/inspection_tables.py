"""An inspection of a checkpoint for people: tables for the terminal, as `anabranch inspect` prints them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from anabranch.observe.diffused import overhead
from anabranch.observe.events import Event
from anabranch.observe.inspection import (
    GroupSummary,
    InputSummary,
    Inspection,
    RunSummary,
    SpilledSummary,
    SpineSummary,
)
from anabranch.observe.numbers import format_bytes, format_count
from anabranch.observe.orders import orders_tables
from anabranch.observe.terminal import bar

NAMED_FILES = 10


def describe(inspection: Inspection, *, groups: bool = False, plans: bool = False) -> Iterator[RenderableType]:
    """The parts to print, one below the other; `groups` adds a line per partition group, `plans` the
    orders of joins."""
    yield _facts(inspection)
    if inspection.inputs:
        yield _inputs(inspection.inputs)
    if inspection.operators:
        yield _operators(inspection)
    if inspection.spines:
        yield _state(inspection.spines)
    if inspection.spilled:
        yield _spilled(inspection.spilled)
    if inspection.groups:
        yield from _groups(inspection.groups, all_of_them=groups)
    if inspection.diffused:
        yield _diffused(inspection)
    if plans:
        yield from orders_tables(inspection.orders, inspection.steps[-1].number if inspection.steps else 0)
    if inspection.events:
        yield _events(inspection.events)
    yield _disk(inspection)
    yield _verdict(inspection)


def _facts(inspection: Inspection) -> Table:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("checkpoint", inspection.path)
    identity = inspection.identity
    engine, groups = identity.get("engine version", "unknown"), identity.get("groups", "?")
    facts.add_row("made by", f"Anabranch {engine}, {groups} groups, time zone {identity.get('session time zone', '?')}")
    facts.add_row("last run", _run(inspection.run))
    for number, step in enumerate(reversed(inspection.steps)):
        label = "steps" if number == 0 else ""
        plural = "processor" if step.processors == 1 else "processors"
        facts.add_row(label, f"step {step.number}: batch {step.batch}, epoch {step.epoch}, {step.processors} {plural}")
    if not inspection.steps:
        facts.add_row("steps", "none committed yet" if not inspection.damage else "none can be read")
    for query in inspection.queries:
        results = "not counted" if query.results is None else format_count(query.results)
        if len(inspection.queries) > 1:
            since = "" if query.since == 1 else f", added with plan {query.since}"
            facts.add_row("results", f"{query.name}: {results} since its beginning{since}")
            continue
        if query.residual:
            results += f", of {format_count(inspection.combinations)} combinations before the residual predicate"
        facts.add_row("results", f"{results} since the beginning")
    return facts


def _run(run: RunSummary | None) -> str:
    if run is None:
        return "none"
    state = {True: "alive", False: "ended", None: "on another machine"}[run.alive]
    return f"epoch {run.epoch}, process {run.pid} on {run.host}, since {_clock(run.since)}, {state}"


def _inputs(inputs: Iterable[InputSummary]) -> Table:
    table = _table("input", "stream", "window", "lateness", "newest event", "watermark", "received", "late", "rejected")
    for entry in inputs:
        table.add_row(
            entry.alias,
            entry.stream,
            _span(entry.window, "unbounded"),
            _span(entry.lateness, "never"),
            _moment(entry.newest),
            _moment(entry.watermark),
            format_count(entry.received),
            format_count(entry.late),
            format_count(entry.rejected),
        )
    return table


def _operators(inspection: Inspection) -> Table:
    headings = ("operator", "processors", *(("cluster",) if inspection.clusters is not None else ()))
    table = _table(*headings, "rows", "bytes", "spilled", left=len(headings))
    for entry in inspection.operators:
        table.add_row(
            entry.name,
            ", ".join(map(str, entry.processors)),
            *((entry.cluster or "-",) if inspection.clusters is not None else ()),
            *_counts(entry.rows, entry.bytes),
            format_bytes(entry.spilled_bytes),
        )
    return table


def _state(spines: Iterable[SpineSummary]) -> Table:
    table = _table("processor", "input", "rows", "bytes", "runs", "merges", "files", left=2)
    entries = list(spines)
    before: int | None = None
    for entry in entries:
        table.add_row(
            str(entry.processor) if entry.processor != before else "",
            entry.input,
            *_counts(entry.rows, entry.bytes),
            str(entry.runs),
            str(entry.merges),
            str(entry.files),
        )
        before = entry.processor
    table.add_section()
    rows, size = sum(entry.rows for entry in entries), sum(entry.bytes for entry in entries)
    table.add_row("all", "", *_counts(rows, size), "", "", str(sum(entry.files for entry in entries)))
    return table


def _spilled(spilled: Iterable[SpilledSummary]) -> Table:
    table = _table("processor", "spilled of", "rows", "bytes", "generations", "groups", "owing", "results owed")
    for entry in spilled:
        table.add_row(
            str(entry.processor),
            entry.inputs,
            *_counts(entry.rows, entry.bytes),
            str(entry.generations),
            str(entry.groups),
            str(entry.owing),
            f"{'at most' if entry.at_most else 'about'} {format_count(entry.owed)}" if entry.owed else "none",
        )
    return table


def _diffused(inspection: Inspection) -> Text:
    cost = f"what diffusion costs: {overhead(inspection.diffused, inspection.copied)}, in the last step"
    return Text("\n".join([*(entry.sentence for entry in inspection.diffused), cost]))


def _groups(groups: tuple[GroupSummary, ...], *, all_of_them: bool) -> Iterator[RenderableType]:
    rows = sorted(entry.rows for entry in groups)
    filled = sum(count > 0 for count in rows)
    middle, greatest = rows[len(rows) // 2], max(groups, key=lambda entry: entry.rows)
    yield Text(
        f"{len(groups)} partition groups, {filled} with state; rows per group: {format_count(rows[0])} at least, "
        f"{format_count(middle)} in the middle, {format_count(greatest.rows)} at most (group {greatest.group})"
    )
    if not all_of_them:
        return
    table = _table("group", "processor", "rows", "bytes", "spilled", "generations", "", left=0)
    for entry in groups:
        share = bar(entry.rows / max(greatest.rows, 1), 24)
        table.add_row(
            str(entry.group),
            ", ".join(map(str, entry.processors)),
            *_counts(entry.rows, entry.bytes),
            format_bytes(entry.spilled_bytes),
            str(entry.generations),
            Text(share, "blue"),
        )
    yield table


def _events(events: Iterable[Event]) -> Table:
    lines = Table.grid(padding=(0, 2))
    for _ in range(3):
        lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    for event in events:
        lines.add_row(f"event {event.number}", _clock(event.time), event.kind, Text(event.reason))
    return lines


def _disk(inspection: Inspection) -> Text:
    parts = [f"{name} {format_bytes(size)}" for name, size in inspection.disk.items()]
    text = Text(f"on disk: {format_bytes(sum(inspection.disk.values()))} ({', '.join(parts)})")
    if inspection.unreferenced:
        names = ", ".join(inspection.unreferenced[:NAMED_FILES])
        more = len(inspection.unreferenced) - NAMED_FILES
        active = inspection.run is not None and inspection.run.alive
        why = "the step under way" if active else "a step that was never committed; the next run removes them"
        text.append(f"\n{len(inspection.unreferenced)} state files that no retained step names, from {why}: {names}")
        text.append(f" and {more} more" if more > 0 else "")
    return text


def _verdict(inspection: Inspection) -> Text:
    if inspection.damage:
        lines = "\n".join(f"  {problem}" for problem in inspection.damage)
        remedy = "Restore the checkpoint as a whole from a copy, or begin anew with another checkpoint folder."
        return Text(f"DAMAGED, {len(inspection.damage)} problem(s):\n{lines}\n{remedy}", style="bold red")
    checked = "every file is there (not read)"
    if inspection.verified:
        checked = "every file is there and its checksum matches, and every row is listed once, where it belongs"
    return Text(f"sound: {checked}", style="green")


def _table(*headings: str, left: int = 2) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right", no_wrap=True)
    return table


def _counts(rows: int, size: int) -> tuple[str, str]:
    return format_count(rows), format_bytes(size)


def _span(micros: int | None, absent: str) -> str:
    return absent if micros is None else f"{micros / 1_000_000:g} s"


def _moment(micros: int | None) -> str:
    """An event time as people write it. Event time may also be a counter, so values far from the present are shown as
    numbers."""
    if micros is None:
        return "-"
    if not 0 <= micros < 4_102_444_800_000_000:
        return f"{micros} us"
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
