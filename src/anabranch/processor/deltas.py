"""The rows that come to the ports of a processor in a round, before they are part of its state.

Rows come to a port from arriving batches, from earlier rounds, from operators below on the same processor, and from
those that have waited. All of them become one sorted segment per port. Copies of rows that another processor keeps
(`StepTask.copied`) are among them, and are told apart by their partition group when rows are kept (`kept`). Rows that
have waited for a grouping are kept apart, as `drained`: in one run with new rows they would make runs that follow each
other overlap in time.
"""

from __future__ import annotations

from anabranch.kernel.delta import keep_after, sort_rows
from anabranch.processor.segments import of_groups, with_columns
from anabranch.state.arrays.row_bytes import concatenated
from anabranch.state.groups import GroupSet
from anabranch.state.runs.run import RunFile, Segment


class Deltas:
    """New rows by port, the run files that hold some of them already, and drained rows by port."""

    def __init__(self, stored: tuple[tuple[str, ...], ...], copied: tuple[GroupSet, ...] = ()) -> None:
        """No rows yet; `stored` are the columns of each port's state, `copied` the groups whose rows are copies."""
        self._stored = stored
        self._copied = copied
        self._rows: dict[int, Segment] = {}
        self._files: dict[int, RunFile] = {}
        self._drained: dict[int, Segment] = {}

    def add(self, port: int, *segments: Segment, file: RunFile | None = None) -> None:
        """Add rows to those of a port; `file` is the run that holds all of the added rows, if there is one."""
        present = self._rows.get(port)
        parts = [with_columns(part, self._stored[port]) for part in segments if len(part)]
        if present is not None and len(present) and parts:
            parts.insert(0, present)
        if len(parts) > 1:
            rows = [part.rows.select(parts[0].rows.schema.names) for part in parts]
            self.put(port, sort_rows(concatenated(rows)))
        elif parts or present is None:
            self._rows[port] = parts[0] if parts else with_columns(segments[0], self._stored[port])
            if file is not None:
                self._files[port] = file

    def put(self, port: int, rows: Segment) -> None:
        """Replace the new rows of a port by rows that no file holds as they are."""
        self._rows[port] = rows
        self._files.pop(port, None)

    def drain(self, port: int, segments: list[Segment]) -> None:
        """Add rows that have waited, apart from new ones."""
        self._drained[port] = sort_rows(concatenated([segment.rows for segment in segments]))

    def drop_before(self, port: int, time: int) -> int:
        """Drop the new rows of a port that are older than a time; returns how many."""
        rows = self._rows.get(port)
        if rows is None:
            return 0
        kept = keep_after(rows, time)
        if kept is not rows:
            self.put(port, kept)
        return len(rows) - len(kept)

    def new(self, port: int) -> Segment | None:
        """The new rows of a port; None if none have come, not even an empty segment."""
        return self._rows.get(port)

    def has_new(self, ports: tuple[int, ...]) -> bool:
        """Whether some port has new rows."""
        return any(len(self._rows.get(port, ())) for port in ports)

    def ports(self) -> list[int]:
        """The ports that have new rows, ascending."""
        return sorted(port for port, rows in self._rows.items() if len(rows))

    def at(self, port: int) -> list[Segment]:
        """All rows of a port: those that have waited, then new ones."""
        return [rows[port] for rows in (self._drained, self._rows) if len(rows.get(port, ()))]

    def kept(self, port: int) -> list[Segment]:
        """All rows of a port that become part of this processor's state: those that are no copies."""
        rows = self.at(port)
        if not self._copied or not self._copied[port]:
            return rows
        others = GroupSet.all(self._copied[port].count) - self._copied[port]
        own = (of_groups(segment, others) for segment in rows)
        return [segment for segment in own if len(segment)]

    def file_of(self, port: int, rows: Segment | None) -> RunFile | None:
        """The run file that holds rows of a port already, if they are its new rows and there is one."""
        return self._files.get(port) if rows is self._rows.get(port) else None
