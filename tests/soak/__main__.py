"""The soak: random rounds, one after the other, for as long as it is told; `make soak ARGS="--minutes 30"`.

Each round has a seed, which says everything about it: plan, data, adaptations, crashes. What does not repeat: the order
of rows inside a batch, which files Spark takes into a batch in a round of the kind `run`, where a driver is when a
round of the kind `kill` kills it, and what policies decide by the time that something took. A failure is told with the
command that repeats its round.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from pyspark.sql import SparkSession

import anabranch as ab
from tests.conftest import QUICK_START
from tests.soak.hands import do_hands
from tests.soak.rounds import do_long, do_property, do_run, do_steps
from tests.soak.searches import do_kill, do_seeded

MINUTES, SPARK = 10.0, 0.7
# How often the rounds through Spark are of each kind.
WEIGHTS = {"steps": 12, "run": 4, "seeded": 3, "kill": 1, "long": 3, "hands": 1}
KINDS = ["property", *WEIGHTS]
WAYS: dict[str, Callable[[SparkSession, Path, int], str]] = {
    "steps": do_steps,
    "run": do_run,
    "seeded": do_seeded,
    "kill": do_kill,
    "long": do_long,
    "hands": do_hands,
}


def kind_of(seed: int, spark: float) -> str:
    """The kind of a round, given which share of the rounds goes through Spark."""
    rng = random.Random(f"kind {seed}")
    if rng.random() >= spark:
        return "property"
    return rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]


@dataclass
class Soak:
    """Rounds, what became of them, and the Spark session that they share."""

    kind: str | None = None
    spark: float = SPARK
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    session: SparkSession | None = None

    def round(self, seed: int) -> None:
        """Do one round, and tell in a line how it went."""
        kind = self.kind or kind_of(seed, self.spark)
        directory = Path(tempfile.mkdtemp(prefix=f"anabranch-soak-{seed}-"))
        started = time.perf_counter()
        try:
            told = self._do(kind, directory, seed)
        except Exception as error:
            repeat = f'make soak ARGS="--seed {seed} --kind {kind}"'
            self.failed.append(repeat)
            notes = " ".join(getattr(error, "__notes__", []))
            print(f"FAILED {seed:>10} {kind:8} {time.perf_counter() - started:6.1f} s  {notes}", flush=True)
            traceback.print_exception(error)
            print(f"repeat it: {repeat}", flush=True)
        else:
            self.counts[kind] += 1
            print(f"ok     {seed:>10} {kind:8} {time.perf_counter() - started:6.1f} s  {told}", flush=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _do(self, kind: str, directory: Path, seed: int) -> str:
        if kind == "property":
            return do_property(seed)
        if self.session is None:
            self.session = ab.local_session(cores=2, memory="1500m", conf=QUICK_START)
            signal.signal(signal.SIGINT, _interrupt)  # PySpark has put its own in place
        return WAYS[kind](self.session, directory, seed)

    def summary(self, seconds: float) -> str:
        """What has been done, and what repeats each failure."""
        rounds = ", ".join(f"{self.counts[kind]} {kind}" for kind in KINDS if self.counts[kind]) or "none"
        lines = [f"{seconds / 60:.1f} minutes; rounds that went well: {rounds}; failures: {len(self.failed)}"]
        return "\n".join([*lines, *(f"  {repeat}" for repeat in self.failed)])


def seeds(first: int | None, minutes: float) -> Iterator[int]:
    """Seeds until the time is over, drawn from the first one."""
    until = time.monotonic() + 60 * minutes
    rng = random.Random(first)
    while time.monotonic() < until:
        yield rng.randrange(10**9)


def main(arguments: list[str]) -> int:
    """Run rounds as told; 1 if any has failed."""
    parser = argparse.ArgumentParser(prog='make soak ARGS="..."', description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long to go on (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="repeat the round of this seed, and no other")
    parser.add_argument("--first", type=int, help="draw all seeds from this one, so that the rounds are the same again")
    parser.add_argument("--kind", choices=KINDS, help="rounds of this kind only")
    parser.add_argument(
        "--spark", type=float, default=SPARK, metavar="SHARE", help="share of rounds with Spark (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    soak, started = Soak(options.kind, options.spark), time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        for seed in [options.seed] if options.seed is not None else seeds(options.first, options.minutes):
            soak.round(seed)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("interrupted", flush=True)
    finally:
        print(soak.summary(time.monotonic() - started), flush=True)
        if soak.session is not None:
            soak.session.stop()
    return 1 if soak.failed else 0


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """End without a word of what it was that was interrupted."""
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
