"""What breaks the rules by which state is shared among processors (`share`), found in manifests.

A row of a port is listed once: by the owner of its group; if the group is diffused, by one of its hosts at the port
whose rows are spread, and by its home at every other port. So three things can be wrong:

- a processor lists rows of a group that are not its own there;
- rows are listed twice, by two processors or by one;
- rows of a diffused group are missing. Which rows there were nobody remembers, but how many bytes of a group each
  processor has is counted by itself (`statistics`), so a slice that is lost leaves a difference.

What other ports have is complete at each host if it is complete at the home: a host borrows all that the home lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.plan.routing import Everywhere, PortRouting, Routing, port_routings
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.slice import Cuts, Slice
from anabranch.state.share import home_groups, port_groups
from anabranch.state.spill import bytes_by_group, rows_by_group

# Bytes are counted as whole numbers, rounded up, by whoever lists them.
ROUNDING = 1


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that is broken: of which operator and group, at which of the operator's ports, None if at no one port."""

    operator: int
    port: int | None
    group: int
    problem: str


def broken_shares(
    manifests: Sequence[Manifest], routings: Sequence[Routing], owners: Sequence[int], cuts: Cuts
) -> Iterator[Broken]:
    """What is listed by the wrong processor, twice, or not at all; `owners` are the operators that ports belong to."""
    seen: dict[int, int] = {}
    for port, (operator, routing) in enumerate(zip(owners, port_routings(routings, owners), strict=True)):
        nth = seen[operator] = seen.get(operator, -1) + 1
        listed = [_listed(manifest, port, operator, nth) for manifest in manifests]
        for group, problem in (*_misplaced(listed, routing, cuts), *_doubled(listed, len(routing.placement), cuts)):
            yield Broken(operator, nth, group, problem)
    for operator in range(len(routings)):
        ports = [port for port, owner in enumerate(owners) if owner == operator]
        for group, problem in _missing(manifests, routings[operator], operator, ports, cuts):
            yield Broken(operator, None, group, problem)


def listing_groups(routing: PortRouting, processor: int) -> GroupSet:
    """The groups whose rows a processor may list at a port."""
    own = port_groups(routing, processor)
    if not routing.diffused:
        return own
    count = len(routing.placement)
    everywhere = GroupSet.of(count, (group for group, route in routing.diffused if isinstance(route, Everywhere)))
    return (own - everywhere) | (everywhere & home_groups(Routing(routing.placement), processor))


def _listed(manifest: Manifest, port: int, operator: int, nth: int) -> list[Slice]:
    """All that a manifest lists at a port: active, retired, spilled, and held back."""
    spine, state = manifest.spines[port], manifest.operators[operator]
    pieces = [*spine.slices(), *spine.retired]
    pieces += [piece for generation in state.generations for piece in generation.ports[nth]]
    return [*pieces, *(state.held[nth] if state.held else ())]


def _misplaced(listed: Sequence[Sequence[Slice]], routing: PortRouting, cuts: Cuts) -> Iterator[tuple[int, str]]:
    count = len(routing.placement)
    for p, pieces in enumerate(listed):
        rows = rows_by_group(pieces, count, cuts)
        for group in np.flatnonzero((rows > 0) & ~listing_groups(routing, p).mask()).tolist():
            hosts = ", ".join(str(q) for q in range(len(listed)) if listing_groups(routing, q).mask()[group])
            yield group, f"{rows[group]:,} rows are listed by processor {p}, and belong to processor {hosts}"


def _doubled(listed: Sequence[Sequence[Slice]], count: int, cuts: Cuts) -> Iterator[tuple[int, str]]:
    """Rows that are in two slices: of all ranges of a file, one begins before another ends."""
    ranges: dict[RunFile, list[NDArray[np.int64]]] = {}
    for p, pieces in enumerate(listed):
        for piece in pieces:
            ranges.setdefault(piece.file, []).append(_ranges(piece, p, cuts))
    for file, parts in ranges.items():
        starts, stops, by = np.concatenate(parts, axis=1)
        order = np.argsort(starts, kind="stable")
        starts, stops, by = starts[order], stops[order], by[order]
        reached = np.maximum.accumulate(stops)
        for n in (1 + np.flatnonzero(starts[1:] < reached[:-1])).tolist():
            other = int(by[int(np.flatnonzero(stops[:n] == reached[n - 1])[0])])
            who = f"processors {other} and {by[n]} both list" if other != by[n] else f"processor {other} lists twice"
            group = min(int(np.searchsorted(cuts(file), starts[n], side="right")) - 1, count - 1)
            yield group, f"{who} rows {starts[n]} to {min(stops[n], reached[n - 1])} of {file.name}"


def _ranges(piece: Slice, processor: int, cuts: Cuts) -> NDArray[np.int64]:
    """The ranges of rows that a slice lists, ascending: where they begin, where they end, and who lists them."""
    if piece.groups is None:
        return np.array([[piece.start], [piece.stop], [processor]], dtype=np.int64)
    edges, numbers = cuts(piece.file).clip(piece.start, piece.stop), piece.groups.numbers()
    starts, stops = edges[numbers], edges[numbers + 1]
    filled = starts < stops
    return np.array([starts[filled], stops[filled], np.full(int(filled.sum()), processor)], dtype=np.int64)


def _missing(
    manifests: Sequence[Manifest], routing: Routing, operator: int, ports: Sequence[int], cuts: Cuts
) -> Iterator[tuple[int, str]]:
    """Diffused groups of which a processor lists another number of bytes than it has counted."""
    if not routing.diffused:
        return
    groups, count = [group for group, _ in routing.diffused], len(routing.placement)
    for p, manifest in enumerate(manifests):
        counted = manifest.operators[operator].statistics.dense(count).bytes
        pieces = (piece for port in ports for piece in manifest.spines[port].slices())
        there = bytes_by_group(pieces, count, cuts)
        for group in groups:
            if abs(int(there[group]) - int(counted[group])) > ROUNDING:
                what = "missing" if there[group] < counted[group] else "too many"
                yield (
                    group,
                    f"processor {p} lists {there[group]:,} bytes and has counted {counted[group]:,}, "
                    f"so rows are {what}",
                )
