"""Everybody who looks at a run sees which groups are diffused, over which hosts, by whom, why, and what that costs."""

from __future__ import annotations

import json
from dataclasses import replace

from anabranch.manager.diffusable import diffused_groups, names_in
from anabranch.manager.diffusion import Diffusion, Occasion, routes_of
from anabranch.manager.plan_shape import Edge, OperatorShape, PlanShape
from anabranch.observe.diffused import DiffusedGroups, overhead
from anabranch.observe.progress import OperatorProgress
from anabranch.observe.story import Story, batch_summary
from anabranch.observe.terminal import batch_line
from anabranch.plan.routing import Routing
from tests.observe.test_terminal import drawn, progress

HOT = DiffusedGroups("join of A, B", (3,), "A", ("B",), (0, 1, 2), (1.0, 1.0, 0.5), 7, 1_000.0, "it is hot", 240.0)
PLAN = PlanShape((OperatorShape(0, "join of A, B", (0, 1), edges=(Edge("A", ()), Edge("B", ()))),), 8)


def test_it_is_told_in_one_sentence() -> None:
    assert HOT.sentence == (
        "join of A, B: group 3 diffused over processors 0, 1, 2; since step 7 each row of A goes to one of them, "
        "and those of B to all; it is hot"
    )


def test_groups_that_are_diffused_alike_are_one_entry() -> None:
    routes, others = routes_of(2, 1, (2, 0), (1.0, 3.0)), routes_of(2, 0, (0, 2), (1.0, 1.0))
    routing = Routing((0,) * 8).diffuse([1, 4], routes).diffuse([6], others)
    since = Occasion(5, 9.0, "a test wants it", 10.0)
    diffusions = [Diffusion(0, 4, since), Diffusion(0, 1, since), Diffusion(0, 6, replace(since, copies=None))]
    first, second = diffused_groups([routing], diffusions, names_in(PLAN), {})
    assert (first.groups, first.master, first.others, first.hosts) == ((1, 4), "B", ("A",), (2, 0))
    assert (first.weights, first.step, first.expected_copies) == ((1.0, 3.0), 5, 20.0)
    assert (second.groups, second.master, second.expected_copies) == ((6,), "A", None)


def test_progress_tells_it_as_json() -> None:
    told = json.loads(json.dumps(HOT.as_dict()))
    assert told["groups"] == [3]
    assert (told["master"], told["replicated"], told["processors"]) == ("A", ["B"], [0, 1, 2])
    assert (told["sinceStep"], told["expectedCopiedRows"], told["reason"]) == (7, 240.0, "it is hot")


def test_the_overhead_is_told_beside_what_was_expected_if_all_of_it_was() -> None:
    assert overhead((HOT, HOT), 500) == "500 rows copied, 480 expected"
    assert overhead((HOT, replace(HOT, expected_copies=None)), 500) == "500 rows copied"


def test_the_panel_and_the_line_of_a_batch_tell_it() -> None:
    story, told = Story(), progress(0)
    operators = (OperatorProgress("join of A, B", 1_000, 10, 1.0, copied=1_234),)
    batch = batch_summary(replace(told, step=replace(told.step, diffused=(HOT,), operators=operators)))
    story.add(batch)
    assert any("diffused" in line and "A spread; 1,234 rows copied, 240 expected" in line for line in drawn(story, 80))
    assert "1 diffused group, 1,234 rows copied, 240 expected" in batch_line(batch, 1.0)
    story.add(batch_summary(progress(1)))
    assert any("0  groups; 0 rows copied" in line for line in drawn(story, 80)), "until it is forgotten"
