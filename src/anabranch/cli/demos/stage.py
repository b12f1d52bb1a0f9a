"""The parts of every demo around its story: a folder, streams that are written while Spark starts, and an end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.console import Console

from anabranch.cli.demos.question import Verdict
from anabranch.cli.process.embedded import embedded_spark
from anabranch.cli.wording import say
from anabranch.errors import ConfigError
from anabranch.observe.numbers import format_seconds

Processors = Annotated[int, typer.Option(help="How many query processors share the state.", min=1)]
Seed = Annotated[int, typer.Option(help="The same seed generates the same streams.", min=0)]


@contextmanager
def demo_folder(keep: Path | None = None) -> Iterator[Path]:
    """The folder `keep`, which must be new or empty; without it a temporary one."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="anabranch-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigError(f"--keep {keep}: it exists already; name a folder that is new or empty")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.absolute()


def start_spark(stack: ExitStack, write_streams: Callable[[], None], *, debug: bool) -> SparkSession:
    """Start Spark until the stack is closed; a thread writes the streams meanwhile."""
    with ThreadPoolExecutor(1) as background:
        generated = background.submit(write_streams)
        spark = stack.enter_context(embedded_spark(debug=debug, short=True))
        generated.result()
    return spark


def say_verdict(console: Console, verdict: Verdict) -> None:
    """Print the verdict of DuckDB, in red if answers differ."""
    say(console, str(verdict), "bold green" if verdict.exact else "bold red")


def last_line(seconds: float, keep: Path | None, run_file: str) -> str:
    """The last line of a demo: how long it took, and the command to go on with."""
    total = f"{format_seconds(seconds)} in all"
    if keep is None:
        return f"{total}, Spark's start included; --keep DIR leaves everything to look at"
    return f"{total}; next: anabranch inspect {keep}/checkpoint, anabranch run {keep}/{run_file}"
