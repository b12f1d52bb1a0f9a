"""Groups whose rows wait are answered later than the others, from where they were left, and no time twice."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from anabranch.kernel.operator import Settled
from anabranch.processor.operators.answering import Answering
from anabranch.state.groups import GroupSet
from anabranch.state.lagging import among, answered, by_time, oldest, union_of
from anabranch.state.manifest import OperatorState
from anabranch.state.runs.slice import Slice
from tests.oracle.profiles import examples
from tests.state.segments import MemoryRuns, segment

GROUPS = 8
STRIDE = 2**64 // GROUPS
NOBODY = GroupSet(GROUPS, 0)

some_groups = st.integers(0, 2**GROUPS - 1).map(lambda bits: GroupSet(GROUPS, bits))


@dataclass
class Grouping:
    """A grouping with a row that waits for each group whose rows wait, and the times that each group was answered."""

    runs: MemoryRuns = field(default_factory=MemoryRuns)
    state: OperatorState = field(default_factory=OperatorState)
    waiting: GroupSet = NOBODY
    settled: int | None = None
    times: defaultdict[int, list[tuple[int | None, int]]] = field(default_factory=lambda: defaultdict(list))

    def step(self, until: int | None, wait: GroupSet, cleaned: GroupSet = NOBODY) -> Answering:
        """Rows of some groups wait from now on; some spilled groups are cleaned up."""
        settled = Settled(self.settled, until)
        after = OperatorState(held=self.hold(wait), lagging=self.state.lagging)
        answering = Answering.of(self.state, after, settled, GROUPS, self.runs.cuts(GROUPS))
        for groups, share in answering.settled_groups:
            for group in (groups - cleaned).numbers().tolist():
                self.answer(group, share)
        for groups, share in answering.of_groups(cleaned):
            for group in groups.numbers().tolist():
                self.answer(group, Settled(self.reached(group), share.until))
        self.state = OperatorState(held=after.held, lagging=answering.lagging_after(cleaned))
        self.waiting, self.settled = wait, until
        return answering

    def hold(self, groups: GroupSet) -> tuple[tuple[Slice, ...], ...]:
        if not groups:
            return ()
        file = self.runs.write(segment([group * STRIDE for group in groups.numbers().tolist()]))
        return ((Slice(file, 0, file.rows),),)

    def reached(self, group: int) -> int | None:
        return self.times[group][-1][1] if self.times[group] else None

    def answer(self, group: int, share: Settled) -> None:
        if share.until is not None and share.until != share.since:
            self.times[group].append((share.since, share.until))


histories = st.lists(st.tuples(st.integers(0, 2), some_groups, some_groups), min_size=1, max_size=12)


@examples(200)
@given(history=histories)
def test_the_times_that_a_group_is_answered_follow_each_other_and_none_is_while_its_rows_wait(
    history: list[tuple[int, GroupSet, GroupSet]],
) -> None:
    grouping = Grouping()
    until = None
    for passed, wait, cleaned in history:
        until = (until or 0) + passed if passed or until is not None else None
        waited, before = grouping.waiting, {group: len(grouping.times[group]) for group in range(GROUPS)}
        behind = union_of(grouping.state.lagging, GROUPS)
        grouping.step(until, wait, cleaned)
        for group in (waited - (cleaned - wait)).numbers().tolist():
            assert len(grouping.times[group]) == before[group], "what stands in the way may still be to come"
        for group in (GroupSet.all(GROUPS) - waited - (wait - behind)).numbers().tolist():
            assert grouping.reached(group) == until, "the others go on"
    grouping.step(until, NOBODY)
    grouping.step(until, NOBODY)
    assert grouping.state.lagging == ()
    for group in range(GROUPS):
        spans = grouping.times[group]
        assert grouping.reached(group) == until
        assert [since for since, _ in spans] == [None, *(end for _, end in spans[:-1])][: len(spans)]


def test_a_group_is_overdue_from_where_it_was_left_and_due_once_its_rows_have_come() -> None:
    grouping, slow = Grouping(), GroupSet.of(GROUPS, [3])
    rest = GroupSet.all(GROUPS) - slow
    assert grouping.step(10, NOBODY).settled_groups == ((GroupSet.all(GROUPS), Settled(None, 10)),), "nothing waits"
    answering = grouping.step(20, slow)
    assert dict(answering.settled_groups) == {rest: Settled(10, 20), slow: Settled(10, 10)}, "it rests at once"
    assert grouping.state.lagging == ((slow, 10),)
    answering = grouping.step(20, slow)
    assert dict(answering.settled_groups) == {rest: Settled(20, 20), slow: Settled(10, 10)}
    assert answering.settled_for_all == Settled(10, 10), "of rows that this group may need none is dropped"
    assert answering.settled_by_group == Settled(20, 20, ((slow, Settled(10, 10)),))
    assert answering.settled_afterwards == Settled(20, 20, ((slow, Settled(None, 10)),))
    assert dict(grouping.step(30, NOBODY).settled_groups)[slow] == Settled(10, 10), "they come in this step"
    assert dict(grouping.step(40, NOBODY).settled_groups) == {rest: Settled(30, 40), slow: Settled(10, 40)}
    assert grouping.state.lagging == ()


def test_a_group_whose_rows_wait_in_every_other_step_is_answered_in_each_of_them_but_the_first() -> None:
    grouping, slow = Grouping(), GroupSet.of(GROUPS, [3])
    reached = []
    for step in range(6):
        grouping.step(10 * (step + 1), slow if step % 2 == 0 else NOBODY)
        reached.append(grouping.reached(3))
    assert reached == [None, None, 30, 30, 50, 50]


@examples(100)
@given(left=some_groups, right=some_groups, asked=some_groups)
def test_what_is_known_of_groups_can_be_divided_and_put_together(
    left: GroupSet, right: GroupSet, asked: GroupSet
) -> None:
    lagging = by_time([(left - right, 5), (right, None), (NOBODY, 7)])
    parts = among(lagging, asked), among(lagging, GroupSet.all(GROUPS) - asked)
    assert dict(by_time(parts[0] + parts[1])) == dict(lagging)
    found = {group: time for groups, time in answered(lagging, asked, 9) for group in groups.numbers().tolist()}
    wanted = {group: None if right.mask()[group] else 5 if left.mask()[group] else 9 for group in range(GROUPS)}
    assert found == {group: wanted[group] for group in asked.numbers().tolist()}
    assert oldest(lagging, 9) == (None if right else 5 if left else 9)
