"""One round of the soak: what a seed draws, and how it is done.

`property` tries new examples of one property test, without Spark. `steps` answers a random plan
step by step, without Structured Streaming around it; most that can happen to a run happens there. `run` does the same
through the public API, with files that arrive while the run goes on. Further kinds are in `searches`.
"""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.manager.snapshot import Policy
from tests.oracle.chance import ChanceDiffusion, ChanceMoves, ChanceSpill
from tests.oracle.lives import Hardships, Life
from tests.oracle.plans import Plan, draw, draw_grouped, draw_others
from tests.oracle.settings import odd_settings
from tests.soak.whole_runs import WholeRun

ROOT = Path(__file__).resolve().parents[2]
# More combinations than this take DuckDB longer than they are worth.
MOST = 20_000


@dataclass(frozen=True)
class Drawn:
    """A plan, the queries that are answered beside it, and what happens to them."""

    plan: Plan
    others: dict[str, Plan]
    hardships: Hardships
    odd: bool

    def __str__(self) -> str:
        plan, hardships = self.plan, self.hardships
        shape = f"{len(plan.names)} streams" if len(plan.names) > 1 else "1 stream"
        parts = [shape + (" grouped" if plan.grouping else ""), f"{len(plan.batches)} batches"]
        parts += [f"{1 + len(self.others)} queries"] if self.others else []
        parts += [type(policy).__name__ for policy in hardships.policies]
        parts += [f"{hardships.memory} bytes"] if hardships.memory else []
        return ", ".join(parts + ["odd settings"] * self.odd)


def draw_round(seed: int) -> Drawn:
    """What happens in a round through Spark."""
    rng = random.Random(f"soak {seed}")
    plan = (draw_grouped if rng.random() < 0.4 else draw)(seed, wild=True)
    plan = plan.thinned(MOST // 10 if plan.grouping else MOST)
    others: dict[str, Plan] = {}
    if len(plan.names) > 1 and rng.random() < 0.5:
        others = draw_others(seed, plan, wild=True)
        others = {name: other for name, other in others.items() if other.thinned(MOST) is other}
    memory = rng.choice([300, 2_000, 10_000])
    spill, moves = ChanceSpill(seed), ChanceMoves(seed)
    kinds: list[tuple[tuple[Policy, ...], int | None]] = [
        ((), None),
        ((spill,), None),
        ((moves,), None),
        ((moves, spill), None),
        ((spill, moves), None),
        ((ab.Spill(),), memory),
        ((ab.LazyDisk(),), memory),
        ((ab.Spill(order="random"), moves), memory),
        ((ab.Adaptive(),), memory),
        ((moves, ab.Adaptive()), memory),
    ]
    policies, limit = rng.choice(kinds)
    spreads = random.Random(f"diffusion {seed}")  # of its own: what seeds draw stays as it was
    places = random.Random(f"places {seed}")
    if spreads.random() < 0.4:
        place = spreads.randrange(len(policies) + 1)
        policies = (*policies[:place], spreads.choice([ChanceDiffusion(seed), ab.Diffusion()]), *policies[place:])
    hardships = Hardships(
        policies,
        limit,
        crashes=rng.choice([0.0, 0.3, 0.6]),
        changes=bool(others) and rng.random() < 0.7,
        reshaped=rng.random() < 0.2,
        migrations=rng.choice([0.0, 0.4, 0.8]),
        reallocations=places.choice([0.0, 0.4, 0.8]),
        diffusions=spreads.choice([0.0, 0.4, 0.8]),
        tiers=random.Random(f"tiers {seed}").random() < 0.2 and not any(map(_needs_all, policies)),
    )
    return Drawn(plan, others, hardships, odd=rng.random() < 0.2)


def _needs_all(policy: Policy) -> bool:
    """Whether a policy counts processors from 0, so that it cannot be in a cluster."""
    return isinstance(policy, ChanceDiffusion)


def do_steps(spark: SparkSession, directory: Path, seed: int) -> str:
    """A round step by step; what was done in it. Raises whatever goes wrong."""
    drawn, rng = draw_round(seed), random.Random(seed)
    life = Life(spark, directory, drawn.plan, rng, drawn.others, drawn.hardships)
    return _lived(spark, drawn, life, seed)


def do_run(spark: SparkSession, directory: Path, seed: int) -> str:
    """A round through the public API."""
    drawn, rng = draw_round(seed), random.Random(seed)
    return _lived(spark, drawn, WholeRun(spark, directory, drawn.plan, rng, drawn.others, drawn.hardships), seed)


def _lived(spark: SparkSession, drawn: Drawn, life: Life | WholeRun, seed: int) -> str:
    try:
        if drawn.odd:
            with odd_settings(spark, random.Random(f"settings {seed}")):
                life.live()
        else:
            life.live()
        life.check()
    except Exception as error:
        error.add_note(f"{drawn}; {' '.join(life.done)}")
        raise
    return f"{drawn}; {' '.join(life.done)}".rstrip("; ")


def do_property(seed: int) -> str:
    """New examples for one property test, in a process of its own."""
    test = random.Random(f"property {seed}").choice(properties())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}", test],
        cwd=ROOT,
        env={**os.environ, "ANABRANCH_HYPOTHESIS": "soak"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise AssertionError(f"{test}\n{done.stdout[-6000:]}{done.stderr[-2000:]}")
    return test


@cache
def properties() -> list[str]:
    """The property tests that need no Spark: functions that take what hypothesis gives them."""
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "@given" not in text or "mark.spark" in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
                if any(decorator.startswith("given(") for decorator in decorators):
                    found.append(f"{path.relative_to(ROOT)}::{node.name}")
    return found
