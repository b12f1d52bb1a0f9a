"""What a benchmark needs, where it works, and where its words go: what it is doing to stderr, what it measured to
stdout."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console, RenderableType

from anabranch.errors import BenchmarkError, ConfigError

PLAIN_WIDTH = 120


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
    """Where to work. A temporary folder is removed, except for the logs that the error of a contender names."""
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
    """Say what is going on."""
    print(line, file=sys.stderr, flush=True)


def show(result: str | RenderableType) -> None:
    """Print what was measured."""
    if isinstance(result, str):
        print(result)
    else:
        console = Console()
        (console if console.is_terminal else Console(width=PLAIN_WIDTH)).print(result)
