"""What all commands have in common: help, version, one line for a failure, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import anabranch
from anabranch.bench import throughput
from anabranch.bench.contenders import child
from anabranch.bench.experiments import EXPERIMENTS
from anabranch.bench.experiments.rig.experiment import Claim, Experiment, Findings
from anabranch.cli import bench_output, papers
from anabranch.cli.bench import ENGINE, PAPERS
from anabranch.cli.main import COMMANDS, app
from anabranch.cli.process import signals
from anabranch.cli.process.failures import RunInterruptedError, SparkFailedError, first_line, reported
from anabranch.errors import AnabranchError, BadRowError, ConfigError, CorruptStateError, UnsupportedError

run = CliRunner().invoke


@pytest.mark.parametrize(
    "command",
    [
        ["demo"],
        ["run"],
        ["inspect"],
        ["remove"],
        ["bench"],
        ["bench", "flat"],
        ["bench", "relocation"],
        ["bench", "diffusion"],
        ["bench", "changes"],
        ["bench", "migration"],
        ["bench", "orders"],
        ["bench", "flux-06"],
        ["bench", "zhu-09"],
        ["bench", "dcape-placement"],
    ],
)
def test_every_command_explains_itself(command: list[str]) -> None:
    shown = run(app, [*command, "--help"])

    assert shown.exit_code == 0
    assert "Usage:" in shown.stdout


@pytest.mark.parametrize("command", [["inspect"], ["clean-up"], ["remove", "pairs"]])
def test_a_folder_that_is_no_checkpoint_is_refused_alike_by_all_commands(command: list[str], tmp_path: Path) -> None:
    name, *others = command
    for folder, why in ((tmp_path, "is not a checkpoint of Anabranch"), (tmp_path / "nowhere", "does not exist")):
        shown = run(app, [name, str(folder), *others])

        assert shown.exit_code == 2
        assert why in shown.stderr


def test_the_version_is_told() -> None:
    assert run(app, ["--version"]).stdout == f"anabranch {anabranch.__version__}\n"


def test_the_benchmarks_are_listed_one_per_line() -> None:
    lines = run(app, ["bench", "--list"]).stdout.splitlines()

    ours = [
        "throughput",
        "chain",
        "shared",
        "groupby",
        "memory",
        "flat",
        "relocation",
        "diffusion",
        "changes",
        "migration",
        "orders",
        "skew",
    ]
    liu = [f"liu-{figure}" for figure in ("06", "07", "09", "10", "11", "12", "14", "15", "16", "17", "20", "21")]
    flux = [f"flux-{figure}" for figure in ("03", "06", "07", "09", "10")]
    zhu = [f"zhu-{figure}" for figure in ("09", "10", "11", "12", "13", "14", "15", "16")]
    assert [line.split()[0] for line in lines] == [*ours, *liu, *flux, *zhu, "dcape-placement"]


def test_a_benchmark_that_cannot_be_run_is_refused_before_anything_starts() -> None:
    shown = run(app, ["bench", "throughput", "--contender", "sprak"])

    assert shown.exit_code == 2
    assert "did you mean 'spark'?" in shown.stderr


def test_the_logs_of_a_contender_that_fails_stay_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(child.sys, "executable", "/bin/false")
    shown = run(app, ["bench", "throughput", "--rows", "10", "--contender", "anabranch"])

    assert shown.exit_code == 1
    (folder,) = tmp_path.iterdir()
    assert f"its logs are in {folder}/scratch-anabranch." in shown.stderr
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert files == [Path("scratch-anabranch/stderr.log"), Path("scratch-anabranch/stdout.log")]


def test_an_interrupted_benchmark_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(options: object, report: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(throughput, "run", interrupted)

    assert run(app, ["bench", "throughput"]).exit_code == 130
    assert list(tmp_path.iterdir()) == []


def test_the_list_says_of_a_paper_what_its_experiment_claims() -> None:
    assert {experiment.name: experiment.claim for experiment in EXPERIMENTS} == PAPERS


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    for entry in COMMANDS:
        command = typer.main.get_command(entry.load())
        assert (command.help or "").partition("\n\n")[0] == entry.line


@pytest.mark.parametrize(
    ("benchmark", "says"), [("liu-06", "the picture needs matplotlib"), ("groupby", "in Python needs protobuf")]
)
def test_a_benchmark_is_refused_before_it_runs_where_a_library_is_missing(
    benchmark: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench_output, "find_spec", lambda name: None)
    shown = run(app, ["bench", benchmark])

    assert shown.exit_code == 2
    assert shown.stderr.endswith(f"{says}, which is not installed; pip install 'anabranch[bench]'\n")
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_prints_its_table_also_if_the_picture_cannot_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_drawn(*_: object) -> Path:
        raise OSError(28, "No space left on device", "liu-06.png")

    findings = Findings("liu-06", (), (Claim("all is well", True, "1 of 1"),), EXPERIMENTS[0].workload)
    monkeypatch.setattr(papers, "embedded_spark", lambda *_, **__: nullcontext())
    monkeypatch.setattr(Experiment, "run", lambda *_: findings)
    monkeypatch.setattr(papers, "draw", not_drawn)
    shown = run(app, ["bench", "liu-06", "--out", str(tmp_path)])

    assert "holds: all is well" in shown.stdout
    assert shown.exit_code == 1
    assert "No space left" in shown.stderr
    assert (tmp_path / "liu-06.json").exists()


def test_a_benchmark_keeps_its_raw_results_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = Findings("liu-06", (), (Claim("all is well", True, "1 of 1"),), EXPERIMENTS[0].workload)
    monkeypatch.setattr(papers, "embedded_spark", lambda *_, **__: nullcontext())
    monkeypatch.setattr(Experiment, "run", lambda *_: findings)
    monkeypatch.setattr(papers, "draw", lambda *_: tmp_path / "liu-06.png")
    shown = run(app, ["bench", "liu-06", "--out", str(tmp_path / "out"), "--save", str(tmp_path / "kept")])

    assert shown.exit_code == 0
    (kept,) = (tmp_path / "kept").iterdir()
    assert f"written: {kept}" in shown.stderr
    assert json.loads(kept.read_text())["bench"] == "liu-06"


@pytest.mark.parametrize("benchmark", [*ENGINE, "flux-06"])
def test_every_benchmark_refuses_a_place_for_its_results_before_it_runs(benchmark: str, tmp_path: Path) -> None:
    (tmp_path / "taken.json").touch()
    shown = run(app, ["bench", benchmark, "--save", str(tmp_path / "taken.json")])

    assert shown.exit_code == 2
    assert "exists already; name another file" in shown.stderr


def test_a_misspelt_command_is_refused_with_exit_code_two_and_the_right_spelling() -> None:
    shown = run(app, ["dmeo"])

    assert shown.exit_code == 2
    assert "Did you mean 'demo'?" in shown.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["bench", "--help"], ["bench", "--list"]])
def test_what_needs_no_engine_imports_none(arguments: list[str]) -> None:
    program = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    program += "; from anabranch.__main__ import app; app(prog_name='anabranch')"
    shown = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    heavy = {"pyspark", "pandas", "numpy", "pyarrow", "sqlglot", "duckdb", "matplotlib", "anabranch.bench"}

    assert heavy & set(shown.stderr.split()) == set()


def test_the_package_can_be_run_as_a_module() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "anabranch", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout == f"anabranch {anabranch.__version__}\n"


def failing(error: BaseException) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    @reported
    def command(debug: bool = False) -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("no such option"), 2, "anabranch: no such option\n"),
        (UnsupportedError("no such clause"), 2, "anabranch: no such clause\n"),
        (BadRowError("a null"), 1, "anabranch: a null\n"),
        (AnabranchError("else"), 1, "anabranch: else\n"),
        (
            CorruptStateError("x is damaged"),
            1,
            "anabranch: x is damaged. Restore the checkpoint as a whole from a copy, or use another; "
            "anabranch inspect names all damage\n",
        ),
        (CorruptStateError("x is missing; restore it"), 1, "anabranch: x is missing; restore it\n"),
        (SparkFailedError("no luck\nat java.base"), 1, "anabranch: Spark: no luck (--debug shows where)\n"),
        (FileNotFoundError(2, "No such file", "x"), 1, "anabranch: x: No such file\n"),
        (ValueError("first\nsecond"), 1, "anabranch: ValueError: first (--debug shows where)\n"),
        (KeyboardInterrupt(), 130, "anabranch: interrupted; nothing is left running\n"),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(error: BaseException, code: int, line: str) -> None:
    shown = run(failing(error), [])

    assert (shown.exit_code, shown.stderr) == (code, line)


def test_the_words_of_spark_are_left_without_its_codes_and_ids() -> None:
    said = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: no luck today SQLSTATE: XXKST\n== JVM =="
    )
    assert first_line(RuntimeError(said)) == "no luck today"


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" in run(failing(ValueError("x")), ["--debug"]).stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_command_with_its_exit_code(number: int, code: int) -> None:
    app = typer.Typer()

    @app.command()
    @reported
    def command() -> None:
        os.kill(os.getpid(), number)
        signal.sigtimedwait([], 5)

    shown = run(app, [])

    assert shown.exit_code == code
    assert shown.stderr.endswith("nothing is left running\n")


def test_a_library_that_swallows_the_interruption_does_not_hide_it() -> None:
    app = typer.Typer()

    @app.command()
    @reported
    def command() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.sigtimedwait([], 5)
        except signals.Interrupted:
            raise RuntimeError("query interrupted") from None

    assert run(app, []).exit_code == 130


def test_a_stopped_run_says_how_to_go_on() -> None:
    app = typer.Typer()

    @app.command()
    @reported
    def command() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait([], 5)
        except signals.Interrupted:
            raise RunInterruptedError("run it again") from None

    assert run(app, []).stderr == "anabranch: ended by SIGTERM: run it again\n"


def test_a_second_signal_does_not_disturb_the_cleaning_up() -> None:
    cleaned = []
    with signals.raised_as_exceptions():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except signals.Interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append(True)

    assert cleaned
    assert signals.received() == signal.SIGINT


def test_signals_are_held_off_where_nothing_may_be_interrupted_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with signals.raised_as_exceptions():
        ours = signal.getsignal(signal.SIGINT)
        with signals.ignored():
            os.kill(os.getpid(), signal.SIGINT)
        with signals.kept():
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGINT) is ours

    assert signal.getsignal(signal.SIGINT) is before
