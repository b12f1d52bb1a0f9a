"""What diffusion costs and saves, by count: theorem 2 of the paper, and each row counted, written and merged once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from anabranch.kernel.join.combinations import UNBOUNDED
from anabranch.manager.manual import diffusion, gathering
from anabranch.state.runs import run as runs
from anabranch.state.runs.run import TS
from anabranch.state.share import borrowed_slices
from tests.kernel.join.streams import Join, Row
from tests.processor.cluster import REJECT, Cluster, eager_and_careless

GROUPS = 4
KEY = 1  # all rows have this one
MASTER, SLAVE = 0, 1
# Rows per batch of the two streams, and for how many batches they are kept.
FAST, SLOW = 60, 12
WINDOWS = (5, 3)
BATCHES = 9


@pytest.fixture(autouse=True, scope="module")
def fast() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


def one_key(windows: tuple[int | None, ...] = (None, None), batches: int = BATCHES) -> Join:
    """Rows of two streams, all with one key."""
    counts = (FAST, SLOW, *(3 for _ in windows[2:]))
    rows = tuple(tuple(Row(KEY, batch, batch) for batch in range(batches) for _ in range(n)) for n in counts)
    return Join(windows, rows)


def hot_group(cluster: Cluster) -> int:
    return int(cluster.join.hash(KEY) >> 62)


def home(cluster: Cluster) -> int:
    return cluster.distribution.routings[0].placement[hot_group(cluster)]


def diffuse(cluster: Cluster, hosts: list[int], master: int = MASTER) -> None:
    group = hot_group(cluster)
    cluster.change(lambda d, c: diffusion(d, c, [group], f"s{master}", hosts, None, {}))


def batch_of(cluster: Cluster, number: int) -> list[pa.RecordBatch]:
    inputs = range(len(cluster.join.windows))
    return [cluster.join.segment(i, lambda row: row.lot == number).rows for i in inputs]


def feed(cluster: Cluster, first: int, last: int) -> None:
    for number in range(first, last):
        if cluster.join.windows[0] is not None:
            cluster.purge = [number - window for window in WINDOWS]
        cluster.feed(batch_of(cluster, number))


def stored(cluster: Cluster, port: int) -> int:
    """The rows that are listed at a port, by all processors."""
    return sum(manifest.spines[port].rows for manifest in cluster.distribution.manifests)


@pytest.mark.parametrize("hosts", [2, 3, 4])
def test_memory_and_rows_received_per_host_are_those_of_theorem_2(tmp_path: Path, hosts: int) -> None:
    alone = Cluster(tmp_path / "alone", one_key(WINDOWS), 4, GROUPS)
    spread = Cluster(tmp_path / "spread", one_key(WINDOWS), 4, GROUPS)
    feed(alone, 0, BATCHES - 1)
    feed(spread, 0, BATCHES - 4)
    others = [p for p in range(4) if p != home(spread)]
    chosen = [home(spread), *others[: hosts - 1]]
    diffuse(spread, chosen)
    feed(spread, BATCHES - 4, BATCHES - 1)
    kept = [FAST * (WINDOWS[0] + 1), SLOW * (WINDOWS[1] + 1)]  # r W, the batch itself included
    assert [stored(alone, port) for port in (MASTER, SLAVE)] == [stored(spread, port) for port in (MASTER, SLAVE)]
    memory = [rows_at_hand(spread, p) for p in chosen]
    # What a host has less than the one processor had, on average: (k-1)/k r1 W1 of memory, (k-1)/k r1 of rows.
    assert rows_at_hand(alone, home(alone)) == sum(kept)
    assert hosts * sum(kept) - sum(memory) == (hosts - 1) * kept[MASTER]
    for cluster in (alone, spread):
        feed(cluster, BATCHES - 1, BATCHES)
    received = [sum(spread.reports[p].worked) for p in chosen]
    assert sum(alone.reports[home(alone)].worked) == FAST + SLOW
    assert hosts * (FAST + SLOW) - sum(received) == (hosts - 1) * FAST
    # The overhead: (k-1) r2.
    assert spread.total("copied") == (hosts - 1) * SLOW
    assert alone.total("copied") == alone.total("borrowed_rows") == 0
    # No host is far from the average: what was cut is cut evenly, and what arrives is spread by a hash.
    assert max(received) < 1.5 * sum(received) / hosts
    assert max(memory) < 1.3 * sum(memory) / hosts
    assert alone.answer == spread.answer


def test_rows_of_the_other_streams_are_written_once_and_their_runs_are_merged_once(tmp_path: Path) -> None:
    with eager_and_careless():
        alone = Cluster(tmp_path / "alone", one_key((None, UNBOUNDED)), 3, GROUPS)
        spread = Cluster(tmp_path / "spread", one_key((None, UNBOUNDED)), 3, GROUPS)
        for cluster in (alone, spread):
            feed(cluster, 0, 3)
        diffuse(spread, [home(spread), *(p for p in range(3) if p != home(spread))])
        for cluster in (alone, spread):
            feed(cluster, 3, BATCHES)
    assert written(alone)[SLAVE] == written(spread)[SLAVE]
    assert written(alone)[SLAVE] > stored(alone, SLAVE), "there were merges"
    assert stored(spread, MASTER) == stored(alone, MASTER)
    guests = [manifest for p, manifest in enumerate(spread.distribution.manifests) if p != home(spread)]
    assert all(manifest.spines[SLAVE].rows == 0 < manifest.spines[MASTER].rows for manifest in guests)
    assert alone.answer == spread.answer


def rows_at_hand(cluster: Cluster, p: int) -> int:
    """The rows that a processor lists, and those that it would borrow in the next step."""
    found = cluster.distribution
    borrowed = borrowed_slices(found.manifests, found.routings, cluster.owners, p, [None] * 2, cluster.cuts)
    return found.manifests[p].rows + sum(piece.rows for slices in borrowed for piece in slices)


def written(cluster: Cluster) -> Counter[int]:
    """How many rows were written, into all files that there ever were, by stream: only the slow one has times."""
    rows: Counter[int] = Counter()
    for path in cluster.state.glob("*.arrow"):
        with pa.memory_map(str(path)) as mapped:
            table = pa.ipc.open_file(mapped).read_all()
        rows[SLAVE if TS in table.column_names else MASTER] += len(table)
    return rows


def test_entering_switching_and_leaving_write_no_file_and_open_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path, one_key(), 3, GROUPS)
    feed(cluster, 0, 4)
    group, first = hot_group(cluster), home(cluster)
    others = [p for p in range(3) if p != first]

    def refuse(*arguments: object) -> None:
        raise AssertionError("a file is opened")

    edits: dict[str, Callable[[], None]] = {
        "enter": lambda: diffuse(cluster, [first, *others]),
        "switch": lambda: diffuse(cluster, [first, *others], SLAVE),
        "other hosts": lambda: diffuse(cluster, [first, others[0]], SLAVE),
        "leave": lambda: cluster.change(lambda d, c: gathering(d, c, [group], None, None)),
    }
    before = cluster.distribution.manifests
    files, size = sorted(cluster.state.iterdir()), sum(manifest.bytes for manifest in before)
    for what, edit in edits.items():
        with monkeypatch.context() as patch:
            patch.setattr(runs, "map_run", refuse)
            edit()
        assert sorted(cluster.state.iterdir()) == files, what
        listed = sum(manifest.bytes for manifest in cluster.distribution.manifests)
        assert abs(listed - size) < 100, what
        cluster.feed([None, None])
        assert sorted(cluster.state.iterdir()) == files, f"{what}: nothing is written anew afterwards"
    assert [manifest.spines for manifest in cluster.distribution.manifests] == [one.spines for one in before]


def test_late_and_bad_rows_are_counted_and_put_aside_once_however_many_hosts_they_go_to(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, one_key((100, 100)), 3, GROUPS)
    feed(cluster, 0, 1)
    first = home(cluster)
    diffuse(cluster, [first, *(p for p in range(3) if p != first)])
    cluster.late, cluster.purge = [5, 5], [None, None]
    batches = []
    for i, rows in enumerate(batch_of(cluster, 6)):
        times = np.where(np.arange(len(rows)) % 3 == 0, 4, 6)  # every third row is late
        notes = [f'{{"row": {n}, "of": {i}}}' if n % 4 == 1 else None for n in range(len(rows))]
        rows = rows.set_column(rows.schema.get_field_index(TS), TS, pa.array(times))
        batches.append(rows.append_column(REJECT, pa.array(notes, pa.string())))
    cluster.feed(batches)
    bad = [sum(n % 4 == 1 for n in range(count)) for count in (FAST, SLOW)]
    late = [sum(n % 3 == 0 and n % 4 != 1 for n in range(count)) for count in (FAST, SLOW)]
    counted = {
        name: np.sum([getattr(report, name) for report in cluster.reports], axis=0).tolist()
        for name in ("received", "rejected", "late")
    }
    assert counted == {"received": [FAST, SLOW], "rejected": bad, "late": late}
    assert lines(cluster, "rejected_file") == sum(bad)
    assert lines(cluster, "late_file") == sum(late)
    on_time = [FAST - bad[0] - late[0], SLOW - bad[1] - late[1]]
    assert [stored(cluster, port) for port in (MASTER, SLAVE)] == [FAST + on_time[0], SLOW + on_time[1]]
    arrived = np.sum([report.arrived for report in cluster.reports])
    assert arrived == FAST + 3 * SLOW
    assert cluster.total("copied") == 2 * on_time[1]


def test_a_host_that_only_has_copies_of_bad_rows_puts_nothing_aside(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, one_key(), 3, GROUPS)
    first = home(cluster)
    diffuse(cluster, [first, *(p for p in range(3) if p != first)])
    rows = batch_of(cluster, 0)[SLAVE]
    notes = pa.array([f'{{"row": {n}}}' for n in range(len(rows))])
    cluster.feed([None, rows.append_column(REJECT, notes)])
    assert [report.rejected_file is not None for report in cluster.reports] == [p == first for p in range(3)]
    assert cluster.total("rejected") == SLOW
    assert lines(cluster, "rejected_file") == SLOW


def lines(cluster: Cluster, name: str) -> int:
    """How many different lines the processors have put aside; none of them twice."""
    folder = cluster.directory / f"reports-{cluster.steps}"
    files = [getattr(report, name) for report in cluster.reports]
    texts = [line for file in files if file is not None for line in (folder / file).read_text().splitlines()]
    assert len(texts) == len(set(texts))
    return len(texts)


def test_a_batch_that_comes_again_under_another_routing_gives_the_same_results(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, one_key((None, None, None)), 4, GROUPS)
    feed(cluster, 0, 2)
    first = home(cluster)
    others = [p for p in range(4) if p != first]
    before, answer = cluster.distribution, cluster.answer
    given = []
    for hosts, master in [([], 0), ([first, others[0]], 0), ([others[2], first, others[1]], 1), (others, 2)]:
        cluster.distribution, cluster.answer = before, Counter()
        if hosts:
            diffuse(cluster, hosts, master)
        feed(cluster, 2, 3)
        given.append(cluster.answer)
        assert cluster.total("produced") == cluster.answer.total()
    assert all(results == given[0] for results in given)
    assert not given[0] & answer
