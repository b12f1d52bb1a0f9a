"""One round of the soak: what a seed draws, and how it is done.

`property` tries new examples of one property test, without Spark. `steps` answers a random plan
step by step, without Structured Streaming around it; most that can happen to a run happens there. `long` is a round of
many batches, in which the engine's own policies have reasons to adapt. `run` does the same as `steps`
through the public API, with files that arrive while the run goes on. Further kinds are in `searches` and `hands`.
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
from anabranch.plan.orders.migration_choice import STRATEGIES
from tests.oracle.chance import ChanceDiffusion, ChanceMoves, ChanceSpill, ChanceWishes, Counted
from tests.oracle.lives import Hardships, Life
from tests.oracle.plans import Plan, draw, draw_grouped, draw_others, orders_of
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
        parts += [type(getattr(policy, "policy", policy)).__name__ for policy in hardships.policies]
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
    orders = random.Random(f"orders {seed}")
    if orders.random() < 0.3:
        strategy, wish = orders.choice(["auto", *STRATEGIES]), orders.choice(["latency", "memory", "work"])
        policies = (*policies, ab.AutoMigrate(gain=1.05, strategy=strategy, wish=wish, evaluations=1))
    if places.random() < 0.4:
        policies = (*policies, ChanceWishes(seed, orders_of(plan)))
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
    """Whether a policy takes all processors and operators to be within its reach, so that it cannot be in a cluster."""
    return isinstance(policy, ChanceDiffusion | ChanceWishes)


def draw_long_round(seed: int) -> Drawn:
    """What happens in a round of so many batches that the engine's own policies decide on something."""
    rng = random.Random(f"long {seed}")
    batches = rng.choice([12, 24])
    plan = (draw_grouped if rng.random() < 0.3 else draw)(seed, wild=True, batches=batches)
    plan = plan.thinned(MOST // 10 if plan.grouping else MOST)
    memory = rng.choice([None, 2_000, 10_000])
    eager: list[Policy] = [
        ab.Adaptive(),
        ab.Diffusion(period=2, hysteresis=1.0),
        ab.Balance(rng.choice([ab.CpuTime(), ab.MemoryShare(), ab.NetworkOutputRate()]), difference=0.0),
        ab.Degradation(),
        ab.FluxLoad(),
        ab.SkewBuffer(),
    ]
    chosen = eager[:1] if rng.random() < 0.6 else rng.sample(eager, 3)
    by_chance: list[Policy] = [ChanceMoves(seed), ChanceSpill(seed), ChanceDiffusion(seed)]
    wishes = [ChanceWishes(seed, orders_of(plan))] if rng.random() < 0.5 else []
    hardships = Hardships(
        (*(Counted(policy, seed) for policy in chosen), *rng.sample(by_chance, rng.choice([0, 0, 1])), *wishes),
        memory,
        crashes=rng.choice([0.0, 0.3]),
        migrations=rng.choice([0.0, 0.1]),
        reallocations=rng.choice([0.0, 0.1]),
        diffusions=rng.choice([0.0, 0.1]),
        batches=(batches // 2, batches),
    )
    return Drawn(plan, {}, hardships, odd=False)


def do_steps(spark: SparkSession, directory: Path, seed: int) -> str:
    """A round step by step; what was done in it. Raises whatever goes wrong."""
    drawn, rng = draw_round(seed), random.Random(seed)
    life = Life(spark, directory, drawn.plan, rng, drawn.others, drawn.hardships)
    return _lived(spark, drawn, life, seed)


def do_long(spark: SparkSession, directory: Path, seed: int) -> str:
    """A round of many batches, step by step."""
    drawn, rng = draw_long_round(seed), random.Random(seed)
    return _lived(spark, drawn, Life(spark, directory, drawn.plan, rng, {}, drawn.hardships), seed)


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
