"""The papers' figures as commands: `anabranch bench liu-06` and its kin.

Whatever an experiment could lack (a folder to write to, a library to draw with) is checked before it runs for minutes.
Its table is printed before anything else is done with the findings, so that no later failure can lose it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from anabranch.bench.experiments import EXPERIMENTS
from anabranch.bench.experiments.dcape.placement import PlacementExperiment
from anabranch.bench.experiments.rig.draw import draw
from anabranch.bench.experiments.rig.experiment import Experiment
from anabranch.bench.experiments.rig.report import table
from anabranch.bench.experiments.zhu.parts.experiment import MigrationExperiment
from anabranch.bench.raw_results import check_target
from anabranch.cli.bench_output import Save, begin, keep, report, require, show, working_folder
from anabranch.cli.process.embedded import embedded_spark
from anabranch.cli.process.failures import FAILED, AsJson, Debug, reported
from anabranch.errors import ConfigError, did_you_mean


def command_for(name: str) -> Callable[..., None]:
    """The command for an experiment of a paper."""
    experiment = _named(name)

    @reported
    def command(
        further: Annotated[
            list[str] | None,
            typer.Argument(help="Further experiments to run after this one.", metavar="EXPERIMENT"),
        ] = None,
        out: Annotated[Path, typer.Option(help="Folder for the numbers (JSON) and the picture (PNG).")] = Path(
            "bench-results"
        ),
        save: Save = None,
        as_json: AsJson = False,
        debug: Debug = False,
    ) -> None:
        chosen = [experiment, *(_named(name) for name in further or ())]
        require("matplotlib", "matplotlib", "the picture")
        if save is not None:
            check_target(save)
            if save.suffix == ".json" and further:
                raise ConfigError(f"--save {save}: one file cannot hold several experiments; name a folder")
        check_target(out)
        all_hold = True
        for each in chosen:
            origin = begin(each.name, save)
            with working_folder(None) as folder, embedded_spark(each.session, debug=debug, short=each.short) as spark:
                findings = each.run(spark, folder, report)
            show(json.dumps(findings.document(), indent=2) if as_json else table(findings))
            keep(origin, findings, out / f"{each.name}.json")
            keep(origin, findings, save)
            report(f"written: {draw(findings, each.draws, out)}")
            all_hold &= findings.hold
        if not all_hold:
            raise typer.Exit(FAILED)

    command.__doc__ = f"""Claim: {experiment.claim}.

    Runs the variants of the experiment, checks that each has all results, writes numbers and a picture,
    and says whether the claim holds; the exit code is 1 if it does not. Several experiments may be named.
    """
    return command


def _named(name: str) -> Experiment | MigrationExperiment | PlacementExperiment:
    experiments: dict[str, Experiment | MigrationExperiment | PlacementExperiment] = {
        experiment.name: experiment for experiment in EXPERIMENTS
    }
    if name not in experiments:
        raise ConfigError(f"there is no experiment {name!r}; {did_you_mean(name, experiments)}")
    return experiments[name]
