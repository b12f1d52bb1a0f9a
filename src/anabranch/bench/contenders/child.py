"""Run one contender in a child process, and leave nothing of it behind.

The child leads its own session, so Ctrl-C in a terminal reaches only the benchmark, which then ends the
child's process group and every descendant it has ever seen (Spark's Python daemon leaves the group). If the
benchmark itself is killed it can end nothing; for that case the child's standard input is a lifeline: it
stays open as long as the parent lives, the child exits when it closes, and a JVM exits when its Python
driver does.

Standard output and error go to files in the scratch folder, which stay when a run fails and are named in
the error.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

import anabranch
from anabranch.bench.contenders.job import Job, Outcome
from anabranch.bench.contenders.memory import SAMPLE_SECONDS, MemoryPeak, TreeSampler
from anabranch.errors import BenchmarkError

LOG_TAIL = 1500


@dataclass(frozen=True, slots=True)
class Measurement:
    """The outcome that a child reported, and the peak memory of its process tree."""

    outcome: Outcome
    memory: MemoryPeak


def measure(job: Job) -> Measurement:
    """Run `job` in a fresh process tree; its scratch folder is emptied before and removed after success."""
    scratch = Path(job.scratch)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    stdout, stderr = scratch / "stdout.log", scratch / "stderr.log"
    with stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "anabranch.bench.contenders.contender"],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            cwd=scratch,
            env=_environment(),
            start_new_session=True,
        )
    sampler = TreeSampler(psutil.Process(process.pid))
    try:
        _send(process, job.to_json())
        _sample_until_end(process, sampler)
    finally:
        _end(process, sampler)
    lines = stdout.read_text(errors="replace").splitlines()
    if process.returncode != 0 or not lines:
        raise BenchmarkError(
            f"contender {job.contender!r} ended with status {process.returncode}; its logs are in {scratch}."
            f" The end of its error log:\n{stderr.read_text(errors='replace')[-LOG_TAIL:]}"
        )
    outcome = Outcome.from_json(lines[-1])
    shutil.rmtree(scratch, ignore_errors=True)
    return Measurement(outcome, sampler.peak)


def _environment() -> dict[str, str]:
    """The parent's environment, with this very package importable in the child and in Spark's workers."""
    package_root = str(Path(anabranch.__file__).parents[1])
    inherited = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (package_root, inherited))),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _send(process: subprocess.Popen[bytes], line: str) -> None:
    if process.stdin is None:
        raise AssertionError("the child was started without a pipe to its standard input")
    with contextlib.suppress(BrokenPipeError):  # a child that is gone already tells by its status
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()


def _sample_until_end(process: subprocess.Popen[bytes], sampler: TreeSampler) -> None:
    while True:
        sampler.sample()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SAMPLE_SECONDS)
            return


def _end(process: subprocess.Popen[bytes], sampler: TreeSampler) -> None:
    """End the group and all its descendants so far, whether or not the child has exited by itself."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for descendant in sampler.seen.values():
        # psutil compares the start time, so a pid that was reused meanwhile is not hit.
        with contextlib.suppress(psutil.Error):
            descendant.kill()
    with contextlib.suppress(BrokenPipeError):
        if process.stdin is not None:
            process.stdin.close()
    process.wait()
