"""What a look at a checkpoint says of results that are owed, and of rows that are not listed once and where they
belong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from anabranch.checkpoint.survey.summaries import spilled_summaries
from anabranch.checkpoint.survey.survey import survey
from anabranch.cli.main import app
from anabranch.manager.diffusion import Diffuser, Occasion, routes_of
from anabranch.manager.distribution import Distribution
from anabranch.manager.plan_shape import OperatorShape, PlanShape
from anabranch.state.cut import take_out
from anabranch.state.generation import Generation
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.runs.run import FileCuts, RunFile
from anabranch.state.runs.slice import Slice
from anabranch.state.runs.spine import Spine
from anabranch.state.spill import bytes_by_group
from anabranch.state.statistics import Statistics
from tests.checkpoint.fabricated import GROUPS, PLAN, ROWS, Fabricated


def test_what_a_join_with_windows_owes_is_told_as_a_bound() -> None:
    pieces = (Slice(RunFile("spilled", 30, 3_000, 0, None, None), 0, 30),)
    both = GroupSet.of(4, [0, 1])
    generations = tuple(Generation(n, both, None, (pieces, pieces), (1_000, 2_000), (5, 7)) for n in (1, 2))
    manifest = Manifest((Spine(), Spine()), (OperatorState(generations=generations),))
    [entry] = spilled_summaries(0, manifest, PLAN, 4)
    assert (entry.owing, entry.owed, entry.at_most) == (2, 2 * (5 + 7), True)
    unbounded = [{**source, "window (us)": None} for source in PLAN["sources"]]
    [entry] = spilled_summaries(0, manifest, {**PLAN, "sources": unbounded}, 4)
    assert (entry.owed, entry.at_most) == (24, False)


@pytest.fixture
def diffused(tmp_path: Path) -> Fabricated:
    """A checkpoint in which group 3 is diffused over both processors, with rows of the first input spread."""
    made = Fabricated(tmp_path / "checkpoint")
    made.add_step()
    made.add_step()
    cuts = FileCuts(made.checkpoint.state, GROUPS)
    counted = tuple(Manifest(one.spines, (OperatorState(statistics=_counted(one, cuts)),)) for one in made.manifests)
    diffuser = Diffuser(PlanShape((OperatorShape(0, "join", (0, 1)),), GROUPS), 0, cuts)
    routes = routes_of(2, 0, (0, 1), (1.0, 2.0))
    distribution = diffuser.diffuse(Distribution(counted, (made.routing,)), [3], routes, Occasion(3, 0.0, "a test"))
    (made.routing,), made.manifests = distribution.routings, list(distribution.manifests)
    made.commit()
    return made


def _counted(manifest: Manifest, cuts: FileCuts) -> Statistics:
    sizes = bytes_by_group(manifest.active(), GROUPS, cuts)
    nothing = np.zeros(GROUPS, dtype=np.int64)
    known = Statistics(np.arange(GROUPS), sizes, nothing, nothing.astype(float), nothing + 1.0, nothing[:, None])
    return known.present()


def _broken(made: Fabricated, processor: int, port: int, spine: Spine) -> list[str]:
    """What is said of a checkpoint that lists something else at a port."""
    manifest = made.manifests[processor]
    spines = [*manifest.spines]
    spines[port] = spine
    made.manifests[processor] = Manifest(tuple(spines), manifest.operators)
    made.commit()
    assert not survey(made.checkpoint.path, "0.3.0", quick=True).damage
    return [problem.partition("partition ")[2] for problem in survey(made.checkpoint.path, "0.3.0").damage]


def test_a_group_that_is_diffused_as_it_should_be_is_sound(diffused: Fabricated) -> None:
    assert not survey(diffused.checkpoint.path, "0.3.0").damage
    assert diffused.manifests[1].spines[0].rows > ROWS * 2


def test_rows_of_the_master_that_two_hosts_list_are_named(diffused: Fabricated) -> None:
    home, guest = (manifest.spines[0] for manifest in diffused.manifests)
    cuts = FileCuts(diffused.checkpoint.state, GROUPS)
    (both,) = (run for run in take_out(home, 3, cuts)[1][:1])
    problems = _broken(diffused, 1, 0, replace(guest, runs=(*guest.runs, both)))
    assert any(text.startswith("group 3: processors 0 and 1 both list rows ") for text in problems)
    assert any("so rows are too many" in text for text in problems)


def test_rows_of_the_master_that_no_host_lists_are_missed(diffused: Fabricated) -> None:
    spine = diffused.manifests[1].spines[0]
    cuts = FileCuts(diffused.checkpoint.state, GROUPS)
    rest, _ = take_out(spine, 3, cuts)
    (problem,) = _broken(diffused, 1, 0, rest)
    assert problem.startswith("group 3: processor 1 lists 0 bytes and has counted ")
    assert problem.endswith(", so rows are missing")
    shown = CliRunner().invoke(app, ["inspect", "--verify", str(diffused.checkpoint.path)], env={"COLUMNS": "300"})
    assert shown.exit_code == 1
    assert "DAMAGED, 1 problem(s)" in shown.stdout
    assert problem in " ".join(shown.stdout.split())


def test_rows_that_are_not_listed_where_they_belong_are_named(diffused: Fabricated) -> None:
    """Rows of the replicated input at a guest, and rows of an ordinary group at a processor that is not its owner."""
    cuts = FileCuts(diffused.checkpoint.state, GROUPS)
    home, guest = (manifest.spines[1] for manifest in diffused.manifests)
    rest, own = take_out(home, 3, cuts)
    rest, others = take_out(rest, 5, cuts)
    diffused.manifests[0] = replace(diffused.manifests[0], spines=(diffused.manifests[0].spines[0], rest))
    problems = _broken(diffused, 1, 1, replace(guest, runs=(*guest.runs, *own, *others)))
    assert any(text.endswith("rows are listed by processor 1, and belong to processor 0") for text in problems)
    assert {int(text.split()[1].rstrip(":")) for text in problems} == {3, 5}
