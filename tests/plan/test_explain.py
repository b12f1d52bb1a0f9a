"""The plan as text says what a user has to know to judge a query."""

from __future__ import annotations

from anabranch.plan.explain import explain_join
from anabranch.plan.logical import ContinuousQuery, JoinInput, JoinOperator, Output, StreamSchema

SECOND = 1_000_000
STREAMS = {
    "A": StreamSchema("A", ("k", "ts", "v"), "ts", 5 * SECOND),
    "B": StreamSchema("B", ("k", "v")),
}


def explain(window: int | None, residual: str | None) -> list[str]:
    query = ContinuousQuery(
        "...",
        (
            JoinInput("a", "A", window, ("`k`",), ("`v` > 1",), ("v",)),
            JoinInput("B", "B", None, ("`k`",), (), ("k", "v")),
        ),
        ((("a", "`k`"), ("B", "`k`")),),
        (JoinOperator((0, 1), (0,), (("`k`",), ("`k`",)), (residual,) if residual else (), (("a", "v"), ("B", "v"))),),
        (Output("v", "`a.v`"), Output("w", "`B.v`")),
    )
    return explain_join(query, STREAMS, key_types=[["bigint"]], rounds=[0], groups=64, processors=3).splitlines()


def test_it_names_key_groups_processors_windows_and_predicates() -> None:
    project, filtered, join, first, second, exchange = explain(10 * SECOND, "`a.v` < `B.v`")
    assert project == "Project [v, w]"
    assert "`a.v` < `B.v`" in filtered
    assert "BinaryJoin on a.`k`=B.`k` (bigint), round 1" in join
    assert "64 partition groups on 3 processor(s)" in exchange
    assert "Stream A AS a, [RANGE 10 s], time ts (lateness 5 s), where `v` > 1, keeps [v], never purged" in first
    assert "Stream B, [unbounded], keeps [k, v], never purged" in second


def test_without_a_residual_there_is_no_filter() -> None:
    assert not any("Filter" in line for line in explain(None, None))


def test_operators_on_top_of_each_other_are_drawn_as_a_tree_with_their_rounds() -> None:
    inputs = tuple(JoinInput(name, "B", None, ("`k`",), (), ("v",)) for name in "abc")
    operators = (
        JoinOperator((0, 1), (0,), (("`k`",), ("`k`",)), ("`a.v` < `b.v`",), (("a", "v"), ("b", "v"))),
        JoinOperator((3, 2), (1,), (("`b.v`",), ("`v`",)), (), (("a", "v"),)),
    )
    classes = ((("a", "`k`"), ("b", "`k`")), (("b", "`v`"), ("c", "`v`")))
    query = ContinuousQuery("...", inputs, classes, operators, (Output("v", "`a.v`"),))
    drawn = explain_join(query, STREAMS, key_types=[["int"], ["string"]], rounds=[0, 1], groups=64, processors=3)
    stream = "[unbounded], keeps [v], never purged"
    assert drawn.splitlines() == [
        "Project [v]",
        "+- BinaryJoin on `b.v`=c.`v` (string), round 2",
        "   +- Filter [`a.v` < `b.v`]",
        "      +- BinaryJoin on a.`k`=b.`k` (int), round 1",
        f"         +- Stream B AS a, {stream}",
        f"         +- Stream B AS b, {stream}",
        f"   +- Stream B AS c, {stream}",
        "64 partition groups on 3 processor(s), exchanged by key hash in 2 rounds",
    ]
