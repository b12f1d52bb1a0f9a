"""Peak memory of a process tree, measured from outside.

Python processes are counted by PSS, the proportional set size: private pages plus each shared page divided
by its users. Neither cheaper number is fair to them. RSS counts a page once per process that maps it, so
forked workers would pay several times for one interpreter. RSS minus shared leaves out mapped files
altogether, and Anabranch keeps its state in mapped files, so it would look as if it had no state at all.

PSS makes the kernel walk the page tables: 50 ms per GB with small pages, measured, during which the process
cannot map memory. Asked five times a second, that would slow down exactly the contender that needs most
memory. So PSS is read again only when a process's RSS has changed by 5% or the last reading is two seconds
old, and scaled with RSS in between. A JVM shares its heap with nobody, its PSS is its RSS (1318 and 1322
MB, measured), and RSS is free; so for JVMs it is RSS.

A JVM that starts a command (Spark's default checkpoint manager does, per file) has for a moment a child
that still runs in the JVM's own memory. Such a twin is told by its command line, which is the JVM's own,
and is left out; counting it would double the JVM.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.2
TOLERATED_CHANGE = 0.05
REFRESH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The largest total so far, with its parts in JVMs and in all other processes, in bytes."""

    total: int = 0
    jvm: int = 0
    python: int = 0


@dataclass(frozen=True, slots=True)
class _Reading:
    """PSS of one process, and the RSS it had at that time."""

    resident: int
    proportional: int
    at: float

    def covers(self, resident: int, now: float) -> bool:
        """Whether scaling this reading is still good enough."""
        changed = abs(resident - self.resident) > TOLERATED_CHANGE * self.resident
        return not changed and now - self.at < REFRESH_SECONDS

    def scaled_to(self, resident: int) -> int:
        """PSS estimated from a later RSS.

        It is never more than RSS: the two are read one after the other, and a process that starts or ends
        its program in between would otherwise be given a size that no process has.
        """
        if self.resident == 0:
            return 0
        return min(resident, self.proportional * resident // self.resident)


@dataclass(slots=True)
class TreeSampler:
    """Samples one process and all its descendants; `seen` are all processes so far."""

    root: psutil.Process
    peak: MemoryPeak = field(default_factory=MemoryPeak)
    seen: dict[int, psutil.Process] = field(default_factory=dict)
    _readings: dict[int, _Reading] = field(default_factory=dict)

    def sample(self) -> None:
        """Take one sample. Processes that end meanwhile count as nothing."""
        jvm = python = 0
        for process in self._processes():
            try:
                if not _is_jvm(process):
                    python += self._proportional(process)
                elif not _is_twin(process):
                    jvm += process.memory_info().rss
            except psutil.Error:
                continue
        if jvm + python > self.peak.total:
            self.peak = MemoryPeak(jvm + python, jvm, python)

    def _processes(self) -> list[psutil.Process]:
        try:
            processes = [self.root, *self.root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        self.seen.update((process.pid, process) for process in processes)
        return processes

    def _proportional(self, process: psutil.Process) -> int:
        resident, now = int(process.memory_info().rss), time.monotonic()
        reading = self._readings.get(process.pid)
        if reading is None or not reading.covers(resident, now):
            memory = process.memory_full_info()
            # Only Linux knows PSS; elsewhere the unique set size is the nearest.
            reading = _Reading(resident, int(getattr(memory, "pss", memory.uss)), now)
            self._readings[process.pid] = reading
        return reading.scaled_to(resident)


def _is_jvm(process: psutil.Process) -> bool:
    return Path(process.exe()).name == "java"


def _is_twin(process: psutil.Process) -> bool:
    """Whether this is a JVM's child between its creation and the start of its command."""
    parent = process.parent()
    return parent is not None and process.cmdline() == parent.cmdline()
