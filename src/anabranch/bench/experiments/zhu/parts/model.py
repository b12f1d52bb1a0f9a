"""What the paper's model says of the states that moving state computes anew: those of B C, and of B C D.

Only the rows of these states are compared with what the engine does, and how they grow. The paper's joins are nested
loops, so its time goes with the pairs that they compare; here no pair is compared that does not join.

Equation 1 says how many rows a state above two others gets. Equation 8 takes for the rate of B C what equation 2 says,
which counts each pair once from either side: as a state that would be twice as large as by equation 1. So its upper
term is twice what comes out when the triples within a window are counted.
"""

from __future__ import annotations

from anabranch.bench.experiments.zhu.parts.setting import Setting
from anabranch.plan.orders.migration_cost import Join, joined_rate, moving_state_work, recomputed


def of_equation_1(setting: Setting) -> tuple[float, float]:
    """The rows of B C and of B C D in full states."""
    window = setting.window / 1_000
    lower = recomputed(Join(setting.rate("B"), setting.rate("C"), setting.selectivity("bc")), window)
    upper = recomputed(Join(lower.inserted / window, setting.rate("D"), setting.selectivity("cd")), window)
    return lower.inserted, upper.inserted


def of_equation_8(setting: Setting) -> float:
    """The rows that are inserted into both, as the paper adds them up."""
    window = setting.window / 1_000
    lower = Join(setting.rate("B"), setting.rate("C"), setting.selectivity("bc"))
    upper = Join(joined_rate(lower, window), setting.rate("D"), setting.selectivity("cd"))
    return moving_state_work([lower, upper], window).inserted


def kept_besides(setting: Setting, streams: int) -> float:
    """How many times as many combinations of so many streams there are in what is kept than in a window.

    The paper purges with each row, and nothing is late. Here rows are kept for R, a bit longer than W (`Setting.kept`),
    and of those only combinations within W of each other join: k rows do so in W^k + k * W^(k-1) * (R - W) of all.
    """
    return 1 + streams * (1_000 * setting.kept / setting.window - 1)


def predicted_rows(setting: Setting) -> tuple[float, float]:
    """The rows of B C and of B C D that our engine has to compute."""
    lower, upper = of_equation_1(setting)
    return lower * kept_besides(setting, 2), upper * kept_besides(setting, 3)


def predicted_work(setting: Setting) -> float:
    """All work of moving state: B is hashed anew and comes to its join, what is made above comes to the next one."""
    return 2 * setting.rate("B") * setting.kept + 2 * sum(predicted_rows(setting))


def apart(measured: float, predicted: float) -> float:
    """How far a measured number is from a predicted one, as a share of it."""
    return measured / predicted - 1
