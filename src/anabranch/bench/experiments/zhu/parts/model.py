"""The paper's model of the states that moving state computes anew: those of B C, and of B C D.

Only the rows of these states, and their growth, are compared with the engine. The paper's joins are nested loops, so
its time goes with the pairs that they compare; here only rows with the same hash are compared.

Equation 1 gives the rows of a state above two others. Equation 8 takes the rate of B C from equation 2, which counts
each pair once from either side, as if the state were twice as large as by equation 1. So its upper term is twice the
number of triples within a window.
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
    """The rows that are inserted into both states, by the paper's sum."""
    window = setting.window / 1_000
    lower = Join(setting.rate("B"), setting.rate("C"), setting.selectivity("bc"))
    upper = Join(joined_rate(lower, window), setting.rate("D"), setting.selectivity("cd"))
    return moving_state_work([lower, upper], window).inserted


def kept_besides(setting: Setting, streams: int) -> float:
    """The factor by which combinations of a number of streams in the kept rows exceed those within a window.

    The paper purges with each row, and nothing is late. Here rows are kept for R, a bit longer than W (`Setting.kept`),
    and of those only combinations within W of each other join: k rows do so in W^k + k * W^(k-1) * (R - W) of all.
    """
    return 1 + streams * (1_000 * setting.kept / setting.window - 1)


def predicted_rows(setting: Setting) -> tuple[float, float]:
    """The rows of B C and of B C D that our engine has to compute."""
    lower, upper = of_equation_1(setting)
    return lower * kept_besides(setting, 2), upper * kept_besides(setting, 3)


def predicted_work(setting: Setting) -> float:
    """All work of moving state: B is hashed anew and comes to its join; the joined rows come to the next one."""
    return 2 * setting.rate("B") * setting.kept + 2 * sum(predicted_rows(setting))


def apart(measured: float, predicted: float) -> float:
    """The difference between a measured number and a predicted one, as a share of the latter."""
    return measured / predicted - 1
