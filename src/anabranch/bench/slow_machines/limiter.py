"""The process behind `slowdown`: holds the query processors of a run to a share of a core each, from outside.

Linux, standard library only: it is started by its path, in a bare interpreter, so that it runs within milliseconds.

A worker that is at work for processor N is called "processor N" (`/proc/PID/comm`). Below the root process, each such
worker has an account, as with cpulimit: it earns its share of the time that passes and pays with the CPU time of all
its threads, as the kernel accounts for it. In debt it is stopped (SIGSTOP), out of debt it goes on (SIGCONT). Time can
be saved up for one period at most, so in the long run no worker has more than its share; one that waits for input has
less.

Shares are read from standard input, a line of JSON each, and confirmed by a line. The end of that input means that the
parent has ended or is gone. Then, and on SIGTERM, all workers are continued. Signals go through descriptors of
processes (pidfd), so a process id that is used again is never hit.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

TICK = 0.005  # seconds between two looks at all accounts
PERIOD = 0.02  # seconds of earnings that an account can hold
DISCOVERY = 0.25  # seconds between two looks for new workers
NAME = b"processor "


def descendants(root: int) -> set[int]:
    """The processes below `root`."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # The name in brackets may contain anything, brackets too; the parent is the second field after it.
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry))
    below: set[int] = set()
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            below.add(child)
            waiting.append(child)
    return below


def processor_of(name: bytes) -> int | None:
    """The processor that a worker of this name works for."""
    number = name.strip().removeprefix(NAME)
    return int(number) if name.startswith(NAME) and number.isdigit() else None


@dataclass(slots=True)
class Account:
    """The CPU time of a worker: it may still use `balance` seconds. `handle` and `name` are open files."""

    pid: int
    handle: int
    name: int
    processor: int | None = None
    balance: float = 0.0
    used: float = 0.0
    stopped: bool = False

    @classmethod
    def open(cls, pid: int) -> Account:
        """Open the account of a process; OSError if it is gone."""
        name = os.open(f"/proc/{pid}/comm", os.O_RDONLY)
        try:
            return cls(pid, os.pidfd_open(pid), name)
        except OSError:
            os.close(name)
            raise

    def look(self, shares: dict[int, float], passed: float) -> None:
        """Earn, pay, and stop or go on. OSError if the process is gone."""
        processor = processor_of(os.pread(self.name, 64, 0))
        share = None if processor is None else shares.get(processor)
        if processor is None or share is None:
            self.processor = None
            self.go_on()
            return
        used = time.clock_gettime(_cpu_clock(self.pid))
        if processor != self.processor:
            # Whatever it did before was for somebody else.
            self.processor, self.used, self.balance = processor, used, 0.0
            return
        self.balance = min(self.balance + share * passed, share * PERIOD) - (used - self.used)
        self.used = used
        if self.balance >= 0:
            self.go_on()
        elif not self.stopped:
            # In this order: we may be told to end in between, and whoever is taken for stopped is continued then.
            self.stopped = True
            signal.pidfd_send_signal(self.handle, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the worker run, if it was stopped here."""
        if self.stopped:
            signal.pidfd_send_signal(self.handle, signal.SIGCONT)
            self.stopped = False

    def close(self) -> None:
        """Let the worker run for good."""
        with contextlib.suppress(ProcessLookupError):
            self.go_on()
        os.close(self.handle)
        os.close(self.name)


def _cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time (clock_getcpuclockid, which Python lacks)."""
    return (~pid << 3) | 2


@dataclass(slots=True)
class Limiter:
    """All accounts below a root process."""

    root: int
    shares: dict[int, float] = field(default_factory=dict)
    accounts: dict[int, Account] = field(default_factory=dict)

    def discover(self) -> None:
        """Open accounts for new processes, and close those of processes that are gone."""
        alive = descendants(self.root) - {os.getpid()}
        for pid in self.accounts.keys() - alive:
            self.accounts.pop(pid).close()
        for pid in alive - self.accounts.keys():
            with contextlib.suppress(OSError):
                self.accounts[pid] = Account.open(pid)

    def look(self, passed: float) -> None:
        """Look at all accounts; `passed` seconds have passed since the last time."""
        for account in list(self.accounts.values()):
            try:
                account.look(self.shares, passed)
            except OSError:
                self.accounts.pop(account.pid).close()

    def close(self) -> None:
        """Let all workers run."""
        while self.accounts:
            self.accounts.popitem()[1].close()


def serve(limiter: Limiter) -> None:
    """Hold processes to their shares until standard input ends."""
    pending = b""
    looked = discovered = time.monotonic()
    limiter.discover()
    while True:
        if select.select([sys.stdin], [], [], TICK)[0]:
            received = os.read(sys.stdin.fileno(), 65_536)
            if not received:
                return
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                limiter.shares = {int(number): share for number, share in json.loads(line).items()}
                print("set", flush=True)
        now = time.monotonic()
        if now - discovered > DISCOVERY:
            limiter.discover()
            discovered = now
        limiter.look(now - looked)
        looked = now


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


def main() -> None:
    """Hold the processors below a root process to their shares: `limiter.py ROOT_PID`."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _end)
    limiter = Limiter(int(sys.argv[1]))
    try:
        serve(limiter)
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        limiter.close()


if __name__ == "__main__":
    main()
