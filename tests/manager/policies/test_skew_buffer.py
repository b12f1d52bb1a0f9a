"""The transient skew buffer in a closed loop with a small model, in which what is held waits for a later step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError
from anabranch.manager.actions import HoldGroups
from anabranch.manager.policies.skew_buffer import PATIENCE, TARGET, SkewBuffer
from anabranch.manager.snapshot import ProcessorView
from tests.manager.snapshots import operator, processor, snapshot, statistics
from tests.oracle.profiles import examples

ROW = 100


@dataclass
class Model:
    """Processors with speeds, each with as many groups; rows of groups that are held wait for a later step.

    A step takes a `fixed` time besides. With `later` what comes in a step is worked on in the next, as by a group-by,
    and a group rests while its rows wait. All are `loaded` by as much: so many seconds for one of CPU time. Groups that
    are `quiet` get nothing after the first step.
    """

    policy: SkewBuffer
    speeds: list[float]
    groups: int = 8
    families: int = 1
    moves: frozenset[int] = frozenset()
    later: bool = False
    fixed: float = 0.0
    loaded: list[float] = field(default_factory=lambda: [3.0] * 8)
    quiet: frozenset[int] = frozenset()
    diffused: tuple[int, ...] = ()
    step: int = 0
    seconds: float = 0.0
    held: set[tuple[int, int]] = field(default_factory=set)
    waiting: dict[tuple[int, int], int] = field(default_factory=dict)
    arrived: dict[tuple[int, int], int] = field(default_factory=dict)
    answered: dict[tuple[int, int], int] = field(default_factory=dict)
    waited: dict[tuple[int, int], int] = field(default_factory=dict)
    actions: list[HoldGroups] = field(default_factory=list)

    def keys(self, processor: int) -> list[tuple[int, int]]:
        numbers = range(processor * self.groups, (processor + 1) * self.groups)
        return [(family, group) for family in range(self.families) for group in numbers]

    def run(self, rows: int | Sequence[int]) -> list[float]:
        """A step in which each group gets so many rows, by processor; how long each processor was busy."""
        self.step += 1
        busy, seen = [], []
        for p, speed in enumerate(self.speeds):
            worked = 0
            for key in self.keys(p):
                rests = key in self.waiting or key in self.held
                fed = rows if isinstance(rows, int) else rows[p]
                come = self.waiting.pop(key, 0) + (0 if self.step > 1 and key[1] in self.quiet else fed)
                if self.later and not rests:
                    worked += self.arrived.get(key, 0) - self.answered.get(key, 0)
                    self.answered[key] = self.arrived.get(key, 0)
                if key in self.held and come:
                    self.waiting[key] = come
                    self.waited[key] = self.waited.get(key, 0) + 1
                else:
                    worked += 0 if self.later else come
                    self.arrived[key] = self.arrived.get(key, 0) + come
                    self.waited[key] = 0
            busy.append((self.fixed + worked / speed) * self.loaded[p] / 3)
            seen.append(self.seen(p, busy[-1], worked))
        self.seconds = max(busy)
        self.actions = list(self.policy.decide(snapshot(*seen, at=self.step, step=self.step)))
        self.held = {(action.family, group) for action in self.actions for group in action.groups}
        return busy

    def seen(self, p: int, busy: float, worked: int) -> ProcessorView:
        operators = []
        for family in range(self.families):
            own = [key for key in self.keys(p) if key[0] == family]
            come = {group: self.arrived.get((family, group), 0) for _, group in own}
            given = {group: self.answered.get((family, group), 0) for _, group in own} if self.later else come
            known = statistics({group: rows * ROW for group, rows in come.items()}, given, arrived=come)
            held = {group: self.waiting[family, group] for _, group in own if (family, group) in self.waiting}
            operators.append(
                operator(known, number=family, held=held, answers_later=self.later, diffused=self.diffused)
            )
        return processor(
            p,
            *operators,
            busy=busy,
            cpu=busy / self.loaded[p],
            rows=worked,
            held_bytes=self.buffered(p),
            moves=p in self.moves,
        )

    def buffered(self, processor: int) -> int:
        return ROW * sum(self.waiting.get(key, 0) for key in self.keys(processor))


def test_while_all_are_equally_fast_nothing_is_held() -> None:
    model = Model(SkewBuffer(), [1000.0] * 4)
    for _ in range(10):
        model.run(100)
        assert model.actions == []


def test_groups_of_a_slow_processor_wait_so_that_the_others_need_not() -> None:
    model = Model(SkewBuffer(), [800.0] * 4, groups=64)
    for _ in range(5):
        assert max(model.run(12)) == 0.96
    model.speeds[2] = 320.0
    times = [max(model.run(12)) for _ in range(12)]
    assert times[0] == pytest.approx(2.4)
    assert {action.processor for action in model.actions} == {2}
    assert "processor 2 would take" in model.actions[0].reason
    settled = 0.96 * TARGET * (4 - 1) / (4 - TARGET)
    assert max(times[5:]) <= 1.3 * settled
    assert sum(times[5:]) <= 1.05 * settled * len(times[5:])
    assert model.buffered(2) > 0


def test_groups_that_are_diffused_do_not_wait() -> None:
    model = Model(SkewBuffer(), [800.0] * 3 + [320.0], diffused=tuple(range(24, 28)))
    held = set()
    for _ in range(10):
        model.run(100)
        held |= {group for _, group in model.held}
    assert held
    assert held <= {28, 29, 30, 31}, "the others on the slow processor"


def test_what_waits_comes_when_the_processor_is_fast_again() -> None:
    model = Model(SkewBuffer(), [800.0] * 4)
    for slow in [False] * 5 + [True] * 10 + [False] * 30:
        model.speeds[1] = 400.0 if slow else 1600.0
        model.run(100)
    assert model.waiting == {}
    assert model.actions == []


def test_groups_that_wait_go_on_waiting_while_the_others_go_on() -> None:
    model = Model(SkewBuffer(), [800.0] * 3 + [320.0])
    for _ in range(4):
        model.run(100)
    held = []
    for _ in range(6):
        model.run(100)
        held.append(model.held)
    assert all(before <= after for before, after in pairwise(held))


def test_a_target_can_be_given() -> None:
    model = Model(SkewBuffer(target="2 seconds"), [800.0, 800.0, 320.0], groups=64)
    for _ in range(12):
        model.run(12)
    assert 1.8 <= model.seconds <= 2.1


def test_groups_of_several_families_take_an_action_each() -> None:
    model = Model(SkewBuffer(), [1600.0, 1600.0, 200.0], families=2)
    for _ in range(6):
        model.run(100)
    assert sorted(action.family for action in model.actions) == [0, 1]
    assert {action.processor for action in model.actions} == {2}


def test_the_buffer_is_bounded_and_then_the_others_wait() -> None:
    size = 4 * 1_000 * ROW
    model = Model(SkewBuffer(size=size), [800.0] * 3 + [200.0])
    filled, seconds = [], []
    for _ in range(60):
        model.run(100)
        filled.append(model.buffered(3))
        seconds.append(model.seconds)
    assert max(filled) <= size
    assert max(filled) > size // 2, "whoever needs it has all of it"
    assert max(seconds[-8:]) > 2, "nothing else helps"


def test_all_processors_share_the_buffer() -> None:
    size = 2_000 * ROW
    model = Model(SkewBuffer(size=size), [800.0] * 6 + [200.0] * 2)
    for _ in range(40):
        model.run(100)
        assert sum(map(model.buffered, range(8))) <= size
    assert min(model.buffered(6), model.buffered(7)) > 0


def test_a_single_processor_and_one_with_a_move_under_way_are_left_alone() -> None:
    alone = Model(SkewBuffer(target="1 millisecond"), [800.0])
    moving = Model(SkewBuffer(), [800.0, 800.0, 80.0], moves=frozenset({2}))
    for _ in range(6):
        alone.run(100)
        moving.run(100)
        assert alone.actions == moving.actions == []


def test_steps_without_rows_say_nothing_of_rates() -> None:
    model = Model(SkewBuffer(), [800.0] * 3 + [320.0])
    for _ in range(6):
        model.run(100)
    assert model.actions != []
    for _ in range(12):
        model.run(0)
    assert model.waiting == {}, "what waited came in steps of its own"
    assert model.actions == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": "huge"}, "'huge' is not a size"),
        ({"target": 2}, "target must be a length of time, such as '2 seconds', not 2"),
        ({"target": "0 seconds"}, "target must be longer than nothing"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SkewBuffer(**wrong)  # type: ignore[arg-type]


@examples(60)
@given(
    speeds=st.lists(st.sampled_from([50.0, 200.0, 800.0]), min_size=2, max_size=4),
    rows=st.lists(st.lists(st.integers(0, 100), min_size=4, max_size=4), min_size=10, max_size=40),
    groups=st.sampled_from([1, 2, 5, 8, 20]),
    target=st.sampled_from([None, "100 milliseconds", "1 second"]),
)
def test_no_group_waits_longer_than_patience_lasts_and_there_are_groups(
    speeds: list[float], rows: list[list[int]], groups: int, target: str | None
) -> None:
    model = Model(SkewBuffer(target=target), speeds, groups)
    for some in rows:
        model.run(some)
        assert all(0 <= action.processor < len(speeds) for action in model.actions)
        assert max(model.waited.values()) <= PATIENCE + groups
        for p in range(len(speeds)):
            assert not set(model.keys(p)) <= model.held, "somebody is always served"


def test_a_processor_that_has_recovered_catches_up_while_the_others_have_little_to_do() -> None:
    """Rows that wait hold back time in the streams, so the others give fewer results for a while."""
    model = Model(SkewBuffer(), [100.0] * 4, groups=40)
    for _ in range(12):
        model.run(2)
    model.speeds[0] = 40.0
    for _ in range(4):
        model.run(2)
    model.speeds = [100.0, 400.0, 400.0, 400.0]
    waiting = []
    for _ in range(4):
        model.run(2)
        waiting.append(sum(model.waiting.values()))
    assert waiting[0] > waiting[1] > waiting[3]


def test_a_processor_that_becomes_late_is_brought_to_the_target_in_the_next_step() -> None:
    model = Model(SkewBuffer(), [100.0] * 4, groups=40)
    for _ in range(12):
        model.run(2)
    model.speeds[0] = 40.0
    first, second = (max(model.run(2)) for _ in range(2))
    assert first == 2.0
    assert second <= 1.05 * TARGET * (2.0 + 3 * 0.8) / 4


def test_nobody_holds_anything_back_when_all_become_slow() -> None:
    model = Model(SkewBuffer(), [100.0] * 4)
    for _ in range(12):
        model.run(10)
    model.speeds = [20.0] * 4
    for _ in range(8):
        model.run(10)
        assert not model.actions


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("fixed", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("groups", [16, 64])
def test_external_load_that_comes_and_goes_is_felt_for_a_step_or_two(later: bool, fixed: float, groups: int) -> None:
    """With load and without a buffer a step takes 2.5 times as long."""
    model = Model(SkewBuffer(), [100 / (1 - fixed)] * 4, groups, later=later, fixed=fixed)
    usual, load = [3.0] * 8, [7.5] + [3.0] * 7
    steps = []
    for model.loaded in [usual] * 8 + [load] * 8 + [usual] * 24:
        steps.append(max(model.run(round(100 / groups))))
    before, slow, afterwards = steps[7], steps[8:16], steps[16:]
    assert slow[0] == pytest.approx(2.5 * before), "nobody knew before"
    assert sum(slow) <= 0.75 * 8 * slow[0]
    assert max(afterwards) <= 2.2 * before, "what waited does not come all at once"
    assert not model.waiting, "and has come in the end"


def test_a_group_that_is_too_large_for_a_step_comes_all_the_same() -> None:
    model = Model(SkewBuffer(), [100.0] * 4, groups=2)
    usual, load = [3.0] * 8, [9.0] + [3.0] * 7
    for model.loaded in [usual] * 6 + [load] * 6 + [usual] * 12:
        model.run(50)
    assert not model.waiting


@pytest.mark.parametrize("later", [False, True])
def test_a_processor_that_cannot_keep_to_its_target_gets_rows_all_the_same(later: bool) -> None:
    policy = SkewBuffer(target="1 millisecond")
    model = Model(policy, [100.0] * 3, groups=4, later=later, fixed=0.5, quiet=frozenset({0, 4, 8}))
    for _ in range(6):
        model.run(10)
    for _ in range(6):
        before = dict(model.arrived)
        model.run(10)
        for p in range(3):
            assert any(model.arrived[key] > before[key] for key in model.keys(p)), "somebody is always served"
