"""The surroundings of a benchmark: its folder and its output. Messages go to stderr, the table to stdout and, with
`--save`, raw results into a file."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType

from anabranch.bench.raw_results import Origin, Result, check_target, origin_of, save
from anabranch.errors import BenchmarkError, ConfigError

PLAIN_WIDTH = 120

Save = Annotated[
    Path | None,
    typer.Option(
        help="Keep the values of every run: a folder (the file is named after benchmark, day and commit), or a new "
        "file that ends in .json.",
    ),
]


def require(module: str, package: str, purpose: str) -> None:
    """Refuse to start without a module that would be missed only after minutes."""
    try:
        missing = find_spec(module) is None
    except ModuleNotFoundError:
        missing = True
    if missing:
        raise ConfigError(f"{purpose} needs {package}, which is not installed; pip install 'anabranch[bench]'")


@contextmanager
def working_folder(work: Path | None) -> Iterator[Path]:
    """The folder to work in. A temporary folder is removed, except for the logs that the error of a contender names."""
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
        yield work
        return
    folder = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    logs: dict[Path, bytes] = {}
    try:
        yield folder
    except BenchmarkError:
        logs = {path: path.read_bytes() for path in folder.glob("scratch-*/*.log")}
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for path, content in logs.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def report(line: str) -> None:
    """Print a message on the progress of a benchmark."""
    print(line, file=sys.stderr, flush=True)


def show(result: str | RenderableType) -> None:
    """Print the result of a benchmark."""
    if isinstance(result, str):
        print(result)
    else:
        console = Console()
        (console if console.is_terminal else Console(width=PLAIN_WIDTH)).print(result)


def begin(bench: str, target: Path | None) -> Origin:
    """The origin of a benchmark's values; refused if they cannot be written to `target`."""
    if target is not None:
        check_target(target)
    return origin_of(bench, sys.argv[1:])


def keep(origin: Origin, result: Result, target: Path | None) -> None:
    """Write a result, if there is a target."""
    if target is not None:
        report(f"written: {save(origin, result, target)}")
