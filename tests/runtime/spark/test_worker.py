"""Memory that a worker frees is there for the next array, without the system's help."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from anabranch.runtime.spark.worker import keep_memory

ARRAYS = """
import resource
import numpy as np
from anabranch.runtime.spark.worker import keep_memory

{before}
for n in range(40):
    if n == 20:
        warm = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [np.ones(1_000_000) for _ in range(6)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - warm)
"""


def page_faults(before: str) -> int:
    """Of making six arrays of 8 MB and freeing them, twenty times."""
    told = subprocess.run(
        [sys.executable, "-c", ARRAYS.format(before=before)], capture_output=True, text=True, check=True
    )
    return int(told.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")
def test_freed_memory_is_used_again() -> None:
    assert 4 * page_faults("assert keep_memory({})") < page_faults("")


@pytest.mark.parametrize(
    "told", [{"MALLOC_TRIM_THRESHOLD_": "1"}, {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1"}], ids=str
)
def test_what_somebody_has_told_malloc_stays(told: dict[str, str]) -> None:
    assert not keep_memory(told)
