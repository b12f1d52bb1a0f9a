"""Child processes that do not outlive their test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from tests.faults.driver import spawn

Start = Callable[..., subprocess.Popen[str]]
Finish = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a driver process; whatever is left of its process group in the end is killed."""
    children: list[subprocess.Popen[str]] = []

    def started(job: dict[str, Any], failpoint: str | None = None) -> subprocess.Popen[str]:
        children.append(spawn(job, failpoint))
        return children[-1]

    yield started
    for child in children:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


@pytest.fixture
def finish(start: Start) -> Finish:
    """Run a job in a driver process that has to succeed, and return what it printed."""

    def finished(job: dict[str, Any]) -> list[dict[str, Any]]:
        child = start(job)
        output, errors = child.communicate()
        assert child.returncode == 0, errors[-5000:]
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    return finished


def is_gone(group: int, timeout: float = 30.0) -> bool:
    """Wait until no process of a process group is left."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        members = [process.pid for process in psutil.process_iter() if _group(process.pid) == group]
        if not members:
            return True
        time.sleep(0.1)
    return False


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
