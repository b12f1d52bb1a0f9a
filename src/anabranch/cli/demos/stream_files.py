"""A generated stream as files: one parquet file per batch, which a source with `maxFilesPerTrigger=1` reads one by one.

Spark takes files in the order of their modification times, so these are set: a second apart.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

Micros = NDArray[np.int64]


def write_stream(folder: Path, rows: pa.Table, arrival: Micros, batches: int, opening: int) -> None:
    """Write rows in the order of their `arrival`, cut into batches of one size; the first is from `opening`, in
    seconds."""
    rows = rows.take(pa.array(np.argsort(arrival, kind="stable")))
    cuts = np.linspace(0, len(rows), batches + 1).astype(np.int64)
    for batch, (start, stop) in enumerate(pairwise(cuts)):
        write_batch(folder, batch, rows.slice(start, stop - start), opening)


def write_batch(folder: Path, number: int, rows: pa.Table, opening: int) -> None:
    """Write the batch of this number. A source that looks meanwhile sees all of the file or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:05d}.parquet"
    hidden = folder / f".{path.name}"
    pq.write_table(rows, hidden)
    os.utime(hidden, (opening + number, opening + number))
    hidden.rename(path)
