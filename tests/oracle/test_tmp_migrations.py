import random, pytest
from tests.oracle.lives import Hardships, Life
from tests.oracle.plans import draw, draw_grouped, draw_others
from tests.oracle.chance import ChanceMoves, ChanceSpill

pytestmark = pytest.mark.spark
import os

SEEDS = [int(x) for x in os.environ.get("SEEDS", "1,2,3").split(",")]
MODE = os.environ.get("MODE", "plain")


@pytest.mark.parametrize("seed", SEEDS)
def test_m(spark, tmp_path, seed):
    rng = random.Random(seed)
    n = 3 + seed % 3
    plan = draw_grouped(seed) if MODE == "grouped" else draw(seed, n, wild=seed % 4 == 0)
    pol = ()
    crashes = 0.0
    if MODE in ("hard", "crash", "grouped"):
        pol = (ChanceSpill(seed), ChanceMoves(seed))
    if MODE == "crash":
        crashes = 0.5
    others = draw_others(seed, plan) if MODE == "others" else {}
    life = Life(
        spark,
        tmp_path,
        plan,
        random.Random(seed),
        others,
        Hardships(pol, crashes=crashes, changes=bool(others), migrations=0.8),
    )
    life.live()
    print("DONE", seed, plan.text, plan.joins, life.done)
    life.check()
