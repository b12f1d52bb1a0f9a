"""The machine that a benchmark ran on, because a number without it says nothing.

The load average is taken before the first run: well above zero means that other programs were using the machine.
"""

from __future__ import annotations

import datetime
import os
import platform
from dataclasses import dataclass
from importlib.metadata import version

import psutil


@dataclass(frozen=True, slots=True)
class Machine:
    """Size and versions; memory is in bytes."""

    date: str
    cores: int
    memory: int
    load: float
    python: str
    pyspark: str

    def __str__(self) -> str:
        """One line for captions."""
        size = f"{self.cores} cores, {self.memory / 2**30:.0f} GiB, load {self.load:.1f}"
        return f"{self.date}, {size}, PySpark {self.pyspark}"


def this_machine() -> Machine:
    """Describe the machine with its present load."""
    return Machine(
        date=datetime.date.today().isoformat(),
        cores=os.cpu_count() or 1,
        memory=int(psutil.virtual_memory().total),
        load=os.getloadavg()[0],
        python=platform.python_version(),
        pyspark=version("pyspark"),
    )
