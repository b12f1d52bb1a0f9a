"""A file mapped into memory, without keeping it open.

Python's `mmap` and Arrow's `memory_map` hold a file descriptor for as long as the mapping lives. A worker maps every
run of its active state, and a process may have as few as 1,024 descriptors. The system call needs none afterwards.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable

import pyarrow as pa

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def map_file(descriptor: int, size: int, path: str | os.PathLike[str]) -> pa.Buffer:
    """The first `size` bytes of an open file, which may be closed. They are unmapped when nobody uses them any more."""
    address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        problem = f"{os.strerror(number)}: it cannot be mapped into memory"
        raise OSError(
            number, f"{problem}; see the limits on memory and on mappings (vm.max_map_count)", os.fspath(path)
        )
    return pa.foreign_buffer(address, size, base=_Mapping(address, size))


class _Mapping:
    """Unmaps a part of memory when it is collected."""

    __slots__ = ("_address", "_size")

    def __init__(self, address: int, size: int) -> None:
        self._address = address
        self._size = size

    def __del__(self, munmap: Callable[[int, int], int] = _LIBC.munmap) -> None:
        munmap(self._address, self._size)
