"""Two roads, a sensor on each, and the cars that pass them: the streams of `anabranch demo plan`.

The example is that of the D-CAPE thesis (section 3.1): which cars turned from one road onto the other within two
minutes? `READINGS` are the ones of its table 3.1; in them cars come along road 1 and turn onto road 2. `write_town`
generates more: many crossings like this one, cars that turn and cars that do not, some of them too late, readings up to
`LATENESS` out of order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.cli.demos.stream_files import write_batch, write_stream

SECOND = 1_000_000
MINUTE = 60 * SECOND
LATENESS = 5 * SECOND
MORNING = 1_767_254_400 * SECOND  # 2026-01-01 08:00 UTC
SENSORS = ("sensor1", "sensor2")
SCHEMA = pa.schema(
    [
        ("car", pa.string()),
        ("type", pa.string()),
        ("mph", pa.int32()),
        ("crossing", pa.int32()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
TYPES = ("Car", "SUV", "Truck")


@dataclass(frozen=True, slots=True)
class Reading:
    """A car that passes a sensor, in some minute."""

    sensor: str
    minute: int
    car: str
    type: str
    mph: int


READINGS = tuple(
    Reading(*entry)
    for entry in (
        ("sensor1", 0, "9034 TR", "Car", 55),
        ("sensor1", 0, "FED 1", "Truck", 42),
        ("sensor1", 1, "SOXFAN4", "Car", 50),
        ("sensor1", 1, "8325 DL", "Car", 35),
        ("sensor1", 1, "345 DGE", "Car", 65),
        ("sensor1", 1, "UMASS1", "SUV", 45),
        ("sensor2", 0, "1345 FD", "Car", 34),
        ("sensor2", 1, "MV 1223", "Truck", 53),
        ("sensor2", 2, "SOXFAN4", "Car", 65),
        ("sensor2", 2, "1492 CC", "Car", 32),
        ("sensor2", 3, "UMASS1", "SUV", 23),
        ("sensor2", 4, "1353 DW", "SUV", 56),
    )
)
MINUTES = 5


def write_minute(folder: Path, minute: int) -> list[Reading]:
    """Write the readings of both sensors in a minute of the example, as a new file each; return the readings."""
    arrived = [reading for reading in READINGS if reading.minute == minute]
    for sensor in SENSORS:
        rows = [
            {
                "car": reading.car,
                "type": reading.type,
                "mph": reading.mph,
                "crossing": 1,
                "ts": MORNING + minute * MINUTE,
            }
            for reading in arrived
            if reading.sensor == sensor
        ]
        write_batch(folder / sensor, minute, pa.Table.from_pylist(rows, SCHEMA), MORNING // SECOND)
    return arrived


@dataclass(frozen=True, slots=True)
class Town:
    """The town to generate: `cars` come along road 1 in ten minutes, at some number of `crossings`, and are read in
    `batches`."""

    cars: int
    crossings: int = 40
    batches: int = 10
    seed: int = 1


def write_town(town: Town, folder: Path) -> None:
    """Write both streams of a town."""
    rng = np.random.default_rng(town.seed)
    passed = np.sort(rng.integers(0, 10 * MINUTE, town.cars)) + MORNING
    numbers = rng.permutation(town.cars)
    crossing = rng.integers(1, town.crossings + 1, town.cars)
    kind = rng.choice(len(TYPES), town.cars, p=(0.7, 0.2, 0.1))
    turned = passed + (rng.exponential(70.0, town.cars) * SECOND).astype(np.int64)
    turns = rng.random(town.cars) < 0.6
    _write_stream(town, folder / "sensor1", rng, numbers, kind, crossing, passed)
    _write_stream(town, folder / "sensor2", rng, *(column[turns] for column in (numbers, kind, crossing, turned)))


def _write_stream(
    town: Town,
    folder: Path,
    rng: np.random.Generator,
    numbers: np.ndarray,
    kind: np.ndarray,
    crossing: np.ndarray,
    ts: np.ndarray,
) -> None:
    rows = pa.table(
        {
            "car": pa.array(np.char.add("car ", numbers.astype(str))),
            "type": pa.array(np.array(TYPES)[kind]),
            "mph": pa.array(rng.integers(15, 70, len(ts)), pa.int32()),
            "crossing": pa.array(crossing, pa.int32()),
            "ts": pa.array(ts).cast(pa.timestamp("us", tz="UTC")),
        },
        schema=SCHEMA,
    )
    # No reading comes more than LATENESS after a newer one.
    write_stream(folder, rows, ts + rng.integers(0, LATENESS, len(ts)), town.batches, MORNING // SECOND)
