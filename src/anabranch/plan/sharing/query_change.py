"""What becomes of the state of a running query when another one takes its place, as a value and as a table.

A state is *kept* (listed again, no row is read), *selected* (its rows are read once, those that the new query leaves
out are dropped), *hashed anew* (read once, and exchanged by another key), *computed* from other states, or begins
*empty*. Rows of a kept state may be gone already: then the new query is complete for rows that are not older than
`gone_before`, in microseconds of event time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum


class Fate(StrEnum):
    """What becomes of a state. A fate equals its text."""

    KEPT = "kept"
    SELECTED = "selected"
    HASHED_ANEW = "hashed anew"
    COMPUTED = "computed"
    EMPTY = "begins empty"


@dataclass(frozen=True, slots=True)
class StateChange:
    """What becomes of the state of some streams, called `holds`, with `rows` rows now.

    `dropped` are conditions that rows had to meet and need not any more: those that did not are not there.
    """

    holds: str
    fate: Fate
    rows: int
    gone_before: int | None = None
    dropped: tuple[str, ...] = ()
    selected_by: tuple[str, ...] = ()
    late_rows_gone: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all rows are there that the new query would have kept."""
        return self.fate is not Fate.EMPTY and self.gone_before is None and not self.dropped

    @property
    def note(self) -> str:
        """What is to be known of it."""
        notes = []
        if self.fate is Fate.EMPTY:
            notes.append("no query has read this stream so far")
        if self.selected_by:
            notes.append(f"rows that meet {' and '.join(self.selected_by)}")
        if self.gone_before is not None:
            late = ", and those that came late," if self.late_rows_gone else ""
            notes.append(f"rows before {event_time(self.gone_before)}{late} are gone, all others are there")
        if self.dropped:
            notes.append(f"rows that did not meet {' and '.join(self.dropped)} were not kept so far")
        return "; ".join(notes)


@dataclass(frozen=True, slots=True)
class ChangePreview:
    """What a change of a running query would do: from the text `before` to `after`.

    `states` is what becomes of the state of the new query, `forgotten` which streams' state is gone. What is `refused`
    cannot be done, and why. With `reads_anew` Spark's query is stopped and started once.
    """

    query: str
    before: str
    after: str
    states: tuple[StateChange, ...] = ()
    forgotten: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    reads_anew: bool = False

    @property
    def is_possible(self) -> bool:
        """Whether it can be done."""
        return not self.refused

    @property
    def is_complete(self) -> bool:
        """Whether every answer comes that has a row from after the change, whatever its other rows."""
        return self.is_possible and all(state.is_complete for state in self.states)

    @property
    def lacks_rows(self) -> bool:
        """Whether rows were left out by conditions that the new query does not have: it has to be allowed."""
        return any(state.dropped for state in self.states)

    def __str__(self) -> str:
        """A table: a line for each state, and below it what cannot be done or is to be known."""
        lines = [f"{self.query}: {_one_line(self.before)}", f"{' ' * len(self.query)}  becomes {_one_line(self.after)}"]
        table = [("state of", "is", "rows", "")]
        table += [(state.holds, str(state.fate), f"{state.rows:,}", state.note) for state in self.states]
        table += [(holds, "forgotten", "", "") for holds in self.forgotten]
        if len(table) > 1:
            widths = [max(len(row[k]) for row in table) for k in range(3)]
            for holds, fate, rows, note in table:
                line = f"  {holds:<{widths[0]}}  {fate:<{widths[1]}}  {rows:>{widths[2]}}  {note}"
                lines.append(line.rstrip())
        if self.reads_anew:
            lines.append("Spark's query is stopped and started once: it has to read more than it does now.")
        lines += [f"It cannot be done: {reason}." for reason in self.refused]
        if self.lacks_rows and self.is_possible:
            lines.append("Rows are lacking that a condition has left out; missing='allow' goes on with what is there.")
        return "\n".join(lines)


def event_time(microseconds: int) -> str:
    """An event time for people, in UTC; as it is where no calendar reaches."""
    try:
        moment = datetime.fromtimestamp(microseconds / 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{microseconds:,} us"
    return moment.replace(tzinfo=None).isoformat(" ", "milliseconds")


def _one_line(text: str) -> str:
    return " ".join(text.split())
