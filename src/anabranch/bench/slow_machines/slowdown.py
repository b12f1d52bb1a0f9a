"""Slow machines on one machine: a bounded share of a core for chosen processors of a run, from outside.

    with Slowdown(os.getpid()) as slowdown:
        slowdown.set({0: 0.5, 1: 0.5, 2: 0.2})

The engine does not notice: its workers simply get less CPU time, as beside another program (paper 2, section 4). Four
processors with a quarter of a core each are four equal machines, though the real machine has only two cores. A process
of its own stops and continues workers (`limiter`); however it or this process ends, no worker stays stopped. It needs
Linux.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from anabranch.bench.slow_machines import limiter
from anabranch.errors import BenchmarkError, ConfigError

END_SECONDS = 5.0


class Slowdown:
    """Holds the processors below a process to shares of a core, until the end of a `with`."""

    def __init__(self, root: int) -> None:
        """Take the process `root` above the workers; none is slowed down yet."""
        self._root = root
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Slowdown:
        if not sys.platform.startswith("linux"):
            raise BenchmarkError(f"processors can be slowed down on Linux only, not on {sys.platform}")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", limiter.__file__, str(self._root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with process:
            # The end of its input ends it; whoever a killed one has left behind is continued here.
            _close_input(process)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        continue_processors(self._root)

    @property
    def pid(self) -> int | None:
        """The id of the limiter's process."""
        return None if self._process is None else self._process.pid

    def set(self, shares: Mapping[int, float]) -> None:
        """Set the shares of a core of these processors; all others are free."""
        for processor, share in shares.items():
            if not 0 < share <= 1:
                raise ConfigError(f"the share of processor {processor} must be above 0 and up to 1, not {share!r}")
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise ConfigError("a slow-down is set inside of its `with` only")
        try:
            process.stdin.write(json.dumps({str(number): share for number, share in shares.items()}) + "\n")
            process.stdin.flush()
            confirmed = process.stdout.readline()
        except BrokenPipeError:
            confirmed = ""
        if not confirmed:
            raise BenchmarkError(f"the process that slows processors down has ended, with status {process.wait()}")


def _close_input(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def continue_processors(root: int) -> None:
    """Continue every stopped processor below a process."""
    for pid in limiter.descendants(root):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if limiter.processor_of(Path(f"/proc/{pid}/comm").read_bytes()) is not None:
                os.kill(pid, signal.SIGCONT)
