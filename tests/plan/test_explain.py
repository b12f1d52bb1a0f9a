"""The plan as text says what a user has to know to judge a query."""

from __future__ import annotations

from anabranch.plan.explain import explain_join
from anabranch.plan.logical import JoinInput, JoinQuery, Output, StreamSchema

SECOND = 1_000_000
STREAMS = {
    "A": StreamSchema("A", ("k", "ts", "v"), "ts", 5 * SECOND),
    "B": StreamSchema("B", ("k", "v")),
}


def explain(window: int | None, residual: str | None) -> list[str]:
    query = JoinQuery(
        "...",
        (
            JoinInput("a", "A", window, ("`k`",), ("`v` > 1",), ("v",)),
            JoinInput("B", "B", None, ("`k`",), (), ("k", "v")),
        ),
        (Output("v", "`a.v`"), Output("w", "`B.v`")),
        (residual,) if residual else (),
    )
    return explain_join(query, STREAMS, key_types=["bigint"], groups=64, processors=3).splitlines()


def test_it_names_key_groups_processors_windows_and_predicates() -> None:
    project, filtered, join, exchange, first, second = explain(10 * SECOND, "`a.v` < `B.v`")
    assert project == "Project [v, w]"
    assert "`a.v` < `B.v`" in filtered
    assert "MultiwayJoin 2 inputs on a.`k`=B.`k` (bigint)" in join
    assert "64 partition groups on 3 processor(s)" in exchange
    assert "Stream A AS a, [RANGE 10 s], time ts (lateness 5 s), where `v` > 1, keeps [v], never purged" in first
    assert "Stream B, [unbounded], keeps [k, v], never purged" in second


def test_without_a_residual_there_is_no_filter() -> None:
    assert not any("Filter" in line for line in explain(None, None))
