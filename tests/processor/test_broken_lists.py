"""Lists of state that are broken in any single way are named: whatever is listed of a diffused group, one slice of it
is lost, listed twice, cut short or listed somewhere else, and the checks of a checkpoint say which group that is.

The state is that of real processors after some steps, with merges under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from anabranch.manager.manual import diffusion
from anabranch.state.broken_shares import Broken, broken_shares
from anabranch.state.cut import take_out
from anabranch.state.manifest import Manifest
from anabranch.state.runs.slice import Slice, SortedRun
from tests.kernel.join.streams import Join, Row
from tests.processor.cluster import Cluster, eager_and_careless

GROUPS, PROCESSORS, KEYS = 4, 4, 4
MASTER = 0
Manifests = list[Manifest]
# Lists a group's rows of a port of a processor, which nobody lists any more, in a wrong way.
Breaking = Callable[[Manifests, int, int, tuple[SortedRun, ...]], Manifests]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three of four processors are hosts of every group, and the join's first input is the master."""
    counts = (24, 9, 6)
    rows = tuple(tuple(Row(n % KEYS, 0, n % 3) for n in range(count)) for count in counts)
    with eager_and_careless():
        made = Cluster(tmp_path_factory.mktemp("cluster"), Join((None,) * 3, rows), PROCESSORS, GROUPS)
        feed(made, 0)
        for group in range(GROUPS):
            hosts = [(group + n) % PROCESSORS for n in range(3)]
            made.change(lambda d, c, group=group, hosts=hosts: diffusion(d, c, [group], "s0", hosts, None, {}))
        feed(made, 1, 2)
        yield made


def feed(cluster: Cluster, *batches: int) -> None:
    for batch in batches:
        inputs = range(len(cluster.join.rows))
        cluster.feed([cluster.join.segment(i, lambda row, b=batch: row.lot == b).rows for i in inputs])


def with_runs(manifests: Manifests, p: int, port: int, runs: Sequence[SortedRun]) -> Manifests:
    """The manifests with more sorted runs at a port of a processor."""
    spines = [*manifests[p].spines]
    spines[port] = replace(spines[port], runs=(*spines[port].runs, *(run for run in runs if run)))
    return [replace(one, spines=tuple(spines)) if n == p else one for n, one in enumerate(manifests)]


def without(manifests: Manifests, p: int, port: int, group: int, cluster: Cluster) -> Manifests:
    """The manifests without the group at a port of a processor."""
    spines = [*manifests[p].spines]
    spines[port], _ = take_out(spines[port], group, cluster.cuts)
    return [replace(one, spines=tuple(spines)) if n == p else one for n, one in enumerate(manifests)]


def shortened(runs: Sequence[SortedRun], at_the_end: bool) -> list[SortedRun]:
    """The runs without one of their rows."""
    first, *others = (piece for run in runs for piece in run)
    start, stop = (first.start, first.stop - 1) if at_the_end else (first.start + 1, first.stop)
    left = [Slice(first.file, start, stop)] if start < stop else []
    return [(piece,) for piece in (*left, *others)]


def elsewhere(to: int) -> Breaking:
    def broken(manifests: Manifests, p: int, port: int, runs: tuple[SortedRun, ...]) -> Manifests:
        return with_runs(manifests, (p + to) % PROCESSORS, port, runs)

    return broken


# What is done with the rows of a group that a processor lists at a port, after they were taken from there.
WAYS: dict[str, Breaking] = {
    "lost": lambda manifests, p, port, runs: manifests,
    "without the first row": lambda manifests, p, port, runs: with_runs(manifests, p, port, shortened(runs, False)),
    "without the last row": lambda manifests, p, port, runs: with_runs(manifests, p, port, shortened(runs, True)),
    "twice": lambda manifests, p, port, runs: with_runs(manifests, p, port, [*runs, runs[0]]),
    **{f"at the processor {to} further": elsewhere(to) for to in range(1, PROCESSORS)},
    **{
        f"at the processor {to} further as well": (
            lambda manifests, p, port, runs, to=to: with_runs(
                with_runs(manifests, p, port, runs), (p + to) % PROCESSORS, port, [runs[-1]]
            )
        )
        for to in range(1, PROCESSORS)
    },
}


def named(cluster: Cluster, manifests: Manifests) -> list[Broken]:
    return [*broken_shares(manifests, cluster.distribution.routings, cluster.owners, cluster.cuts)]


@pytest.mark.parametrize("way", WAYS)
def test_whatever_single_list_of_a_diffused_group_is_broken_is_named_with_its_group(cluster: Cluster, way: str) -> None:
    sound, tried = [*cluster.distribution.manifests], 0
    assert not named(cluster, sound)
    for p, manifest in enumerate(sound):
        for port, spine in enumerate(manifest.spines):
            for group in range(GROUPS):
                _, runs = take_out(spine, group, cluster.cuts)
                if not runs:
                    continue
                broken = WAYS[way](without(sound, p, port, group, cluster), p, port, runs)
                problems = named(cluster, broken)
                assert {problem.group for problem in problems} == {group}, (p, port, group, problems)
                tried += 1
    assert tried > 12, "three groups have rows: of the master at three hosts, of two other inputs at home"


def test_taking_rows_out_and_putting_them_back_breaks_nothing(cluster: Cluster) -> None:
    manifests = [*cluster.distribution.manifests]
    for p, manifest in enumerate(manifests):
        for port in range(len(manifest.spines)):
            for group in range(GROUPS):
                _, runs = take_out(manifests[p].spines[port], group, cluster.cuts)
                manifests = with_runs(without(manifests, p, port, group, cluster), p, port, runs)
    assert not named(cluster, manifests)
