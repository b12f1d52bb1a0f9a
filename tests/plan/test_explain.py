"""The plan as text says what a user has to know to judge a query."""

from __future__ import annotations

from xml.etree import ElementTree

from anabranch.plan.assembly import network_of
from anabranch.plan.explain import Measured, explain
from anabranch.plan.network import Request
from anabranch.plan.query import ContinuousQuery, JoinInput, JoinOperator, Output, Source, StreamSchema
from anabranch.plan.rounds import Dataflow, Edge
from anabranch.plan.svg import as_svg

SECOND = 1_000_000
STREAMS = {
    "A": StreamSchema("A", ("k", "ts", "v"), "ts", 5 * SECOND),
    "B": StreamSchema("B", ("k", "v")),
}


def lines(window: int | None, residual: str | None) -> list[str]:
    query = ContinuousQuery(
        "...",
        (
            JoinInput("a", "A", window, ("`k`",), ("`v` > 1",), ("v",), (Source("A"),)),
            JoinInput("B", "B", None, ("`k`",), (), ("k", "v"), (Source("B"),)),
        ),
        ((("a", "`k`"), ("B", "`k`")),),
        (
            JoinOperator(
                (0, 1),
                (0,),
                (("`k`",), ("`k`",)),
                (residual,) if residual else (),
                (("a", "v"), ("B", "k"), ("B", "v")),
            ),
        ),
        (Output("v", "`a.v`"), Output("w", "`B.v`")),
    )
    network = network_of([Request("q", query)], STREAMS)
    return str(
        explain(network, STREAMS, key_types=[["bigint"]], rounds=[0], placements=[(0, 1, 2)], groups=64, processors=3)
    ).splitlines()


def test_it_names_key_groups_processors_windows_and_predicates() -> None:
    project, filtered, join, first, second, exchange = lines(10 * SECOND, "`a.v` < `B.v`")
    assert project == "Project [v, w]"
    assert "`a.v` < `B.v`" in filtered
    assert "BinaryJoin on a.`k`=B.`k` (bigint), round 1 on all processors" in join
    assert "64 partition groups on 3 processor(s)" in exchange
    assert "Stream A AS a, [RANGE 10 s], time ts (lateness 5 s), where `v` > 1, keeps [v], never purged" in first
    assert "Stream B, [unbounded], keeps [k, v], never purged" in second


def test_without_a_residual_there_is_no_filter() -> None:
    assert not any("Filter" in line for line in lines(None, None))


def test_operators_on_top_of_each_other_are_drawn_as_a_tree_with_their_rounds() -> None:
    inputs = tuple(JoinInput(name, "B", None, ("`k`",), (), ("v",)) for name in "abc")
    operators = (
        JoinOperator((0, 1), (0,), (("`k`",), ("`k`",)), ("`a.v` < `b.v`",), (("a", "v"), ("b", "v"))),
        JoinOperator((3, 2), (1,), (("`b.v`",), ("`v`",)), (), (("a", "v"),)),
    )
    classes = ((("a", "`k`"), ("b", "`k`")), (("b", "`v`"), ("c", "`v`")))
    query = ContinuousQuery("...", inputs, classes, operators, (Output("v", "`a.v`"),))
    network = network_of([Request("q", query)], STREAMS)
    picture = explain(
        network,
        STREAMS,
        key_types=[["int"], ["string"]],
        rounds=[0, 1],
        placements=[(0, 1, 2), (1, 1, 1)],
        groups=64,
        processors=3,
    )
    stream = "[unbounded], keeps [v], never purged"
    assert str(picture).splitlines() == [
        "Project [v]",
        "+- BinaryJoin on `b.v`=c.`v` (string), round 2 whole on processor 1",
        "   +- Filter [`a.v` < `b.v`]",
        "      +- BinaryJoin on a.`k`=b.`k` (int), round 1 on all processors",
        f"         +- Stream B AS a, {stream}",
        f"         +- Stream B AS b, {stream}",
        "   +- Stream B AS c, [unbounded], keeps [v], never purged",
        "64 partition groups on 3 processor(s), exchanged by key hash in 2 rounds",
    ]
    assert picture.outline.splitlines() == [
        "Project [v]",
        "+- BinaryJoin on `b.v`=c.`v` (string)",
        "   +- Filter [`a.v` < `b.v`]",
        "      +- BinaryJoin on a.`k`=b.`k` (int)",
        "         +- Stream B AS a",
        "         +- Stream B AS b",
        "   +- Stream B AS c",
    ]


def test_what_was_measured_stands_at_each_operator_and_in_the_picture() -> None:
    inputs = tuple(JoinInput(name, "B", None, ("`k`",), (), ("v",), (Source("B"),)) for name in "abc")
    operators = (
        JoinOperator((0, 1), (0,), (("`k`",), ("`k`",)), ("`a.v` < `b.v`",), (("a", "v"), ("b", "v"))),
        JoinOperator((3, 2), (1,), (("`b.v`",), ("`v`",)), (), (("a", "v"),)),
    )
    classes = ((("a", "`k`"), ("b", "`k`")), (("b", "`v`"), ("c", "`v`")))
    query = ContinuousQuery("...", inputs, classes, operators, (Output("<v>", "`a.v`"),))
    measured = Measured(2.0, (100, 200, 300), (600, 90), ((100, 1024), (200, 2048), (300, 4096), (600, 8192)))
    picture = explain(
        network_of([Request("q", query)], STREAMS),
        STREAMS,
        key_types=[["int"], ["int"]],
        rounds=[0, 1],
        placements=[(0, 1, 2), (1, 1, 1)],
        groups=64,
        processors=3,
        measured=measured,
    )
    text = str(picture)
    assert "round 2 whole on processor 1; 90 rows out, 45/s, 0.1 per row in\n" in text
    assert "round 1 on all processors; 600 rows out, 300/s, 2 per row in, state 600 rows, 8.0 KiB\n" in text
    assert "never purged; 300 rows in, 150/s, state 300 rows, 4.0 KiB\n" in text
    drawn = ElementTree.fromstring(as_svg(picture))
    boxes = [element for element in drawn.iter() if element.tag.endswith("rect")]
    assert len(boxes) == 7
    assert next(element.text for element in drawn.iter() if element.tag.endswith("text")) == "Project [<v>]"
    places = [tuple(float(box.attrib[side]) for side in ("x", "y", "width", "height")) for box in boxes]
    for n, (x, y, width, height) in enumerate(places):
        assert 0 <= x <= float(drawn.attrib["width"]) - width
        for a, b, w, h in places[n + 1 :]:
            assert x + width <= a or a + w <= x or y + height <= b or b + h <= y


def test_it_says_which_edges_cross_processors_and_whether_fewer_rounds_would_do() -> None:
    inputs = tuple(JoinInput(name, "B", None, ("`k`",), (), ("v",)) for name in "abc")
    operators = (
        JoinOperator((0, 1), (0,), (("`k`",), ("`k`",)), (), (("a", "v"),)),
        JoinOperator((3, 2), (0,), (("`a.k`",), ("`k`",)), (), (("a", "v"),)),
    )
    query = ContinuousQuery("...", inputs, ((("a", "`k`"), ("b", "`k`"), ("c", "`k`")),), operators, ())
    network = network_of([Request("q", query)], STREAMS)

    def told(*homes: int, parted: tuple[str, ...] = ()) -> str:
        placements = [(home,) * 4 for home in homes]
        flow = Dataflow((0, 0), (Edge(0, 1, 0),))
        rounds = flow.rounds(placements).of
        return explain(
            network,
            STREAMS,
            key_types=[["bigint"]] * 2,
            rounds=rounds,
            placements=placements,
            groups=4,
            processors=2,
            flow=flow,
            parted=parted,
        ).exchange

    apart = "; 1 of 1 edges between operators cross processors, and 1 round would do with placement='fewest-rounds'"
    assert told(0, 1).endswith("in 2 rounds" + apart)
    assert told(1, 1).endswith("in 1 round; 0 of 1 edges between operators cross processors")
    assert told(0, 1, parted=("join of c, a, b",)).endswith(
        "; placed like their kin, join of c, a, b would need no round of their own"
    )
