"""The cost model of plan migration of paper 3 (section 5), equation by equation.

A change from an old tree of binary joins (the old box) to a new one takes moving state T_MS seconds, in which it makes
no answers, and parallel track T_PT seconds, in which both trees run. Names are those of the paper: rates are in rows
per second, all streams have one window W in seconds, a selectivity (sigma) is the share of all pairs that joins. What a
pair, an insertion and so on take is measured elsewhere (`kernel/constants`).

The model is that of the paper's engine: joins are nested loops, so work is in pairs that are compared, and the machine
keeps up with what arrives. `migration_choice` predicts for our engine, which looks rows up, on estimates for any
windows; `Constants`, `Work` and `parallel_track_seconds` belong to both.

Two equations are printed with slips, which are mended here: in equation 6 the integral already is over the first W, so
W is not multiplied again with it, or the unit would be rows squared times seconds; and equation 7 integrates what is a
rate already. Both are as the text around them says: state grows evenly for one W, and then stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain


@dataclass(frozen=True, slots=True)
class Constants:
    """What single actions take, in seconds (table 1 of paper 3): T_j, T_s, T_m and T_c.

    `join` a pair, `insert` a row into a state, or purge one, compare the names of two states to `match` them, and make
    a cursor to `move` a state. The last two are negligible.
    """

    join: float
    insert: float
    match: float = 0.0
    move: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """Pairs that are compared, and rows that are inserted into states or purged."""

    pairs: float
    inserted: float

    def __add__(self, other: Work) -> Work:
        return Work(self.pairs + other.pairs, self.inserted + other.inserted)

    def seconds(self, constants: Constants) -> float:
        """How long it takes: T_j and T_s times what is done."""
        return constants.join * self.pairs + constants.insert * self.inserted


@dataclass(frozen=True, slots=True)
class Join:
    """A binary join: the rates of its two inputs, and its selectivity sigma."""

    left: float
    right: float
    selectivity: float


def recomputed(join: Join, window: float) -> Work:
    """What it takes to fill the state above a join anew from the two states below it.

    Equation 1: T_S = lambda_A * lambda_B * W^2 * (T_j + T_s * sigma_AB).
    """
    pairs = join.left * join.right * window**2
    return Work(pairs, pairs * join.selectivity)


def joined_rate(join: Join, window: float) -> float:
    """The rows per second that a join makes, the rate of an input of the join above it.

    Equation 2: lambda_AB = 2 * lambda_A * lambda_B * W * sigma_AB.
    """
    return 2 * join.left * join.right * window * join.selectivity


def moving_state_work(joins: Sequence[Join], window: float) -> Work:
    """What moving state does: fill the states above these joins, those that no state of the old tree matches."""
    return sum((recomputed(join, window) for join in joins), Work(0.0, 0.0))


def moving_state_seconds(
    joins: Sequence[Join], window: float, constants: Constants, *, operators: tuple[int, int] = (0, 0)
) -> float:
    """How long moving state takes, in which no answers are made. `operators` are numbers N and M, of the old and new.

    Equation 3: T_MS = T_match + T_move + T_S, where T_match = 4 * N * M * T_m, T_move = 2 * min(N, M) * T_c, and T_S is
    the sum of equation 1 over the states that are recomputed.
    """
    old, new = operators
    matched = 4 * old * new * constants.match
    moved = 2 * min(old, new) * constants.move
    return matched + moved + moving_state_work(joins, window).seconds(constants)


def parallel_track_seconds_of_paper(window: float, levels: int) -> float:
    """How long both trees run in the engine of the paper, whose old tree has so many levels of joins.

    Equation 4: T_PT = W if h = 1, and 2 * W if h > 1.
    """
    if levels < 1:
        raise ValueError(f"a tree of joins has at least one level, not {levels}")
    return window if levels == 1 else 2 * window


def parallel_track_seconds(windows: Sequence[float | None], lateness: Sequence[float | None]) -> float | None:
    """How long both trees run in our engine, whatever the levels; None, for ever, where a stream is unbounded, or where
    nothing of it is ever late.

    T_PT = max W + max lateness. A result needs every row to be within its own window of the newest one, also a row that
    is part of a joined one already. So an old row can be in a result for its window, and no longer, as soon as nothing
    older can come. The paper's joined rows live on for a second W after their newest part, and it waits for them.
    """
    lengths = [length for length in windows if length is not None]
    delays = [length for length in lateness if length is not None]
    if len(lengths) < len(windows) or len(delays) < len(lateness):
        return None
    return max(lengths) + max(delays)


def old_operator_work(join: Join, window: float) -> Work:
    """What a join of the old tree does in the 2W of parallel track; each row that comes purges one, on the average.

    Equation 5: T_AB = 2W * (2 * T_j * lambda_A * lambda_B * W + 2 * T_s * (lambda_A + lambda_B)).
    """
    coming = join.left + join.right
    return Work(2 * window * 2 * join.left * join.right * window, 2 * window * 2 * coming)


def new_operator_work(join: Join, window: float) -> Work:
    """What a join of the new tree does in the 2W of parallel track: its states grow for one W, from nothing.

    Equation 6: T_BC = W * T_s * (lambda_B + lambda_C)
                     + T_j * (lambda_B * integral from 0 to W of lambda_C * t dt, and the same for C)
                     + W * (2 * T_j * lambda_B * lambda_C * W + 2 * T_s * (lambda_B + lambda_C)).
    """
    coming = join.left + join.right
    growing = Work(join.left * join.right * window**2, window * coming)
    full = Work(window * 2 * join.left * join.right * window, window * 2 * coming)
    return growing + full


def new_operator_rate(join: Join, window: float, seconds: float) -> float:
    """The rows per second that a join of the new tree makes so many seconds after the change began.

    Equation 7: lambda_BC = 2 * lambda_B * lambda_C * sigma_BC * t if t <= W, and that of equation 2 after.
    """
    return joined_rate(join, min(seconds, window))


def parallel_track_work(old: Sequence[Join], new: Sequence[Join], window: float) -> Work:
    """What both trees do in 2W, the sum of equations 5 and 6. Rates are those of full states, so of the new tree's
    upper joins it is more than they do."""
    works = chain((old_operator_work(join, window) for join in old), (new_operator_work(join, window) for join in new))
    return sum(works, Work(0.0, 0.0))
