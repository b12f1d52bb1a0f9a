"""What makes Spark's Python workers good places for processors; done once per process."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

# Of malloc.h: M_MMAP_THRESHOLD and M_TRIM_THRESHOLD. Memory that is freed stays with the process up to the second.
KEPT = {-3: 32 << 20, -1: 64 << 20}
TOLD = {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}


@cache
def settle_worker() -> None:
    """Spare a Python worker the work of garbage collections and of allocating that it would do again and again."""
    _freeze_imports()
    keep_memory(os.environ)


def _freeze_imports() -> None:
    """Keep what has been imported out of garbage collections.

    Spark makes a worker collect its garbage after every task, before it takes the next. Going through the objects of
    all imported modules took 50 ms each time, on cores that were wanted for the next batch.
    """
    gc.freeze()


def keep_memory(environment: Mapping[str, str]) -> bool:
    """Keep memory that is freed for the next array or the next task, unless somebody has told malloc what to do.

    glibc gives the memory of large arrays back to the system at once, and every page of the next one is then fetched
    by a page fault: about a tenth of the CPU time of a GROUP BY over the last rows. Other C libraries are left alone.
    """
    if environment.keys() & TOLD or "glibc.malloc." in environment.get("GLIBC_TUNABLES", ""):
        return False
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        return all(mallopt(parameter, limit) == 1 for parameter, limit in KEPT.items())
    return False
