"""Processors are held to their shares from outside, and none stays stopped, whatever ends the limiter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from anabranch.bench.slow_machines.slowdown import Slowdown
from anabranch.errors import BenchmarkError, ConfigError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")

SPINNING = "import sys; open('/proc/self/comm', 'w').write(sys.argv[1]); print(flush=True)\nwhile True: pass"
ENOUGH = 0.4  # seconds


@contextmanager
def spinning(name: str) -> Iterator[psutil.Process]:
    with subprocess.Popen([sys.executable, "-S", "-c", SPINNING, name], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield psutil.Process(process.pid)
        finally:
            process.kill()


def used(*processes: psutil.Process) -> list[float]:
    """CPU time of each as a share of the time that it takes the first to have enough; the machine may be busy."""
    began, before = time.monotonic(), [process.cpu_times().user for process in processes]
    _await(lambda: processes[0].cpu_times().user - before[0] >= ENOUGH)
    passed = time.monotonic() - began
    return [(process.cpu_times().user - was) / passed for process, was in zip(processes, before, strict=True)]


def runs(process: psutil.Process) -> bool:
    return process.status() != psutil.STATUS_STOPPED


def test_processors_get_their_shares_and_others_are_left_alone() -> None:
    with (
        spinning("processor 0") as slow,
        spinning("processor 1") as slower,
        spinning("processors") as other,
        Slowdown(os.getpid()) as slowdown,
    ):
        slowdown.set({0: 0.5, 1: 0.1})
        shares = used(slow, slower, other)
        assert 0 < shares[0] < 0.75
        assert 0 < shares[1] < 0.2
        assert shares[2] > shares[1]
        slowdown.set({0: 0.1})
        assert used(slower, slow)[1] < 0.2


def test_processes_of_others_are_not_touched() -> None:
    with spinning("processor 0") as process, spinning("root") as root, Slowdown(root.pid) as slowdown:
        slowdown.set({0: 0.01})
        assert used(process)[0] > 0.05


def test_at_the_end_everybody_runs() -> None:
    with spinning("processor 3") as process:
        with Slowdown(os.getpid()) as slowdown:
            slowdown.set({3: 0.01})
            _await(lambda: not runs(process))
        assert runs(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_limiter_that_is_told_to_end_lets_everybody_run(number: signal.Signals) -> None:
    with spinning("processor 3") as process, Slowdown(os.getpid()) as slowdown:
        slowdown.set({3: 0.01})
        _await(lambda: not runs(process))
        assert slowdown.pid is not None
        os.kill(slowdown.pid, number)
        _await(lambda: psutil.Process(slowdown.pid).status() == psutil.STATUS_ZOMBIE)
        assert runs(process)
        with pytest.raises(BenchmarkError, match="has ended"):
            slowdown.set({3: 0.01})


def test_when_the_parent_is_killed_everybody_runs() -> None:
    program = (
        "import sys, time; from anabranch.bench.slow_machines.slowdown import Slowdown\n"
        "with Slowdown(int(sys.argv[1])) as slowdown:\n"
        "    slowdown.set({3: 0.01}); print(slowdown.pid, flush=True); time.sleep(60)"
    )
    arguments = [sys.executable, "-c", program, str(os.getpid())]
    with (
        spinning("processor 3") as process,
        subprocess.Popen(arguments, stdout=subprocess.PIPE) as parent,
    ):
        assert parent.stdout is not None
        limiter = int(parent.stdout.readline())
        _await(lambda: not runs(process))
        parent.kill()
        _await(lambda: not psutil.pid_exists(limiter))
        assert runs(process)


@pytest.mark.parametrize("share", [0, -1, 1.5])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with Slowdown(os.getpid()) as slowdown, pytest.raises(ConfigError, match="processor 1 must be above 0 and up to 1"):
        slowdown.set({1: share})


def test_shares_are_set_inside_of_the_with_only() -> None:
    with pytest.raises(ConfigError, match="inside of its `with`"):
        Slowdown(os.getpid()).set({0: 0.5})


def _await(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
