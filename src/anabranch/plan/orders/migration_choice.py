"""What a change of join order will cost by each strategy, and which strategy to take.

A `Migration` is what a change comes to, in rows: which states of the new tree are there already, under the same key;
which are there under another key and are re-partitioned; and which have to be made by joining those below them. States
are matched by the inputs that they hold and the key that they are hashed on, as ports are (`port_state`). From that
`predicted` says for each strategy

    moving-state    all rows are replayed in one step: silence for as long as that takes
    background      the same rows, but between batches and in what they leave of the time: no silence
    parallel-track  both trees run until no old row can be in a result (`migration_cost.parallel_track_seconds`): no
                    silence and nothing to replay, but all rows of that time twice; impossible without windows

and `choose` takes the best by a wish. How long work takes is equation 1 of paper 3, T_j * pairs + T_s * inserted, with
constants that are measured (`kernel/constants`). Only that rows are looked up by hashes here, so in place of pairs that
are compared there are rows that are read, made or exchanged, as in `order_cost`.

Not counted: rows that arrive while the background is at work and have to be replayed, too; what is spilled; that
batches take longer while two trees run; and that a state which matches may lack rows, if they died earlier in the old
tree than they would in the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from anabranch.plan.arrangement import Shape, arrange
from anabranch.plan.join_keys import reaches
from anabranch.plan.orders.join_estimates import MICROSECONDS, Estimates, Inputs
from anabranch.plan.orders.join_orders import Wish
from anabranch.plan.orders.migration_cost import Constants, Work, parallel_track_seconds
from anabranch.plan.orders.order_cost import inputs_of_parts, order_cost
from anabranch.plan.query import LogicalQuery

Strategy = Literal["moving-state", "parallel-track", "background"]
STRATEGIES: tuple[Strategy, ...] = ("moving-state", "parallel-track", "background")


@dataclass(frozen=True, slots=True)
class Capacity:
    """How long work takes: the `constants` of kernels, how many times as long as kernels alone a step takes for its
    rows (`strain`), on how many processors at once (`lanes`), and the seconds of a `step` whatever its rows. Batches
    leave a share of the time to `spare`."""

    constants: Constants
    spare: float = 0.25
    strain: float = 1.0
    lanes: int = 1
    step: float = 0.0

    def __post_init__(self) -> None:
        sizes = (self.constants.join, self.constants.insert, self.strain, self.lanes)
        if min(sizes) <= 0 or self.step < 0 or not 0 <= self.spare <= 1:
            raise ValueError(f"{self} is no capacity: work takes time, and a share is between 0 and 1")

    def seconds(self, work: Work) -> float:
        """How long so much work takes, without what a step takes whatever its rows."""
        return work.seconds(self.constants) * self.strain / self.lanes


@dataclass(frozen=True, slots=True)
class PortRows:
    """A state of the new tree: the inputs it holds, the classes it is hashed on, and its rows.

    It `is_shared` if the old tree has it as it is; otherwise `read` are the rows that are read to make it.
    """

    inputs: Inputs
    key: tuple[int, ...]
    rows: float
    is_shared: bool
    read: float


@dataclass(frozen=True, slots=True)
class Migration:
    """A change of join order: the states of the new tree, and what both trees do while they run beside each other.

    `arriving` is the new tree's work per second on rows of streams, `joining` that on what it joins once its states are
    full, `answers` are per second. `window` is the longest, `both` how long both would run (None is for ever), each in
    seconds.
    """

    ports: tuple[PortRows, ...]
    arriving: float
    joining: float
    answers: float
    window: float | None
    both: float | None

    @property
    def made(self) -> float:
        """Rows of states that the old tree does not have."""
        return sum(port.rows for port in self.ports if not port.is_shared)

    @property
    def replayed(self) -> float:
        """Rows that are read and made to have these states."""
        return self.made + sum(port.read for port in self.ports)

    @property
    def work(self) -> Work:
        """The same as work: all of these rows are looked up or made, and those that are made are stored."""
        return Work(pairs=self.replayed, inserted=self.made)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a change costs: seconds in which there are no answers (`silence`), seconds until the new tree alone is in
    force, rows of work beside those of the old tree, and the most rows in state beside those of the old tree."""

    strategy: Strategy
    silence: float
    seconds: float
    extra_rows: float
    extra_state_rows: float


def migration_between(
    query: LogicalQuery,
    before: Shape | None,
    after: Shape | None,
    estimates: Estimates,
    lateness: Sequence[int | None],
) -> Migration:
    """The change of a query from one order of joins to another; the lateness of its streams is in microseconds.

    Raises `UnconnectedError` if an order joins what has nothing in common.
    """
    windows = [_seconds(entry.window) for entry in query.inputs]
    cost = order_cost(query, after, estimates)
    leaves = [frozenset({n}) for n in range(len(query.inputs))]
    arriving = 2 * sum(map(estimates.rate, leaves))
    bounded = [window for window in windows if window is not None]
    return Migration(
        ports=_ports(query, before, after, estimates),
        arriving=arriving,
        joining=cost.work - arriving,
        answers=estimates.rate(frozenset(range(len(query.inputs)))),
        window=max(bounded) if len(bounded) == len(windows) else None,
        both=parallel_track_seconds(windows, list(map(_seconds, lateness))),
    )


def predicted(
    strategy: Strategy, migration: Migration, capacity: Capacity, *, in_order: bool = True
) -> Prediction | None:
    """What the change costs by one strategy; None if that is impossible.

    With parallel track the new tree's answers wait for the end if they have to come `in_order`.
    """
    match strategy:
        case "moving-state":
            seconds = capacity.step + capacity.seconds(migration.work) if migration.replayed else 0.0
            return Prediction(strategy, seconds, seconds, migration.replayed, migration.made)
        case "background":
            return _in_background(migration, capacity)
        case "parallel-track":
            return _in_parallel(migration, in_order)


def choose(predictions: Iterable[Prediction | None], wish: Wish) -> Prediction | None:
    """The best of the possible strategies: for "latency" the one with the least silence, then the earliest in force;
    for "memory" the one with the least extra state; for "work" the one with the least extra rows."""
    possible = [prediction for prediction in predictions if prediction is not None]
    return min(possible, key=_PREFERENCES[wish], default=None)


_PREFERENCES: dict[Wish, Callable[[Prediction], tuple[float, ...]]] = {
    "latency": lambda one: (one.silence, one.seconds, one.extra_rows),
    "memory": lambda one: (one.extra_state_rows, one.silence, one.seconds),
    "work": lambda one: (one.extra_rows, one.silence, one.seconds),
}


def _in_background(migration: Migration, capacity: Capacity) -> Prediction | None:
    """The same work as moving state, in what batches leave of the time; impossible if they leave nothing."""
    if capacity.spare == 0 and migration.replayed > 0:
        return None
    alone = capacity.step + capacity.seconds(migration.work)
    seconds = alone / capacity.spare if migration.replayed > 0 else 0.0
    return Prediction("background", 0.0, seconds, migration.replayed, migration.made)


def _in_parallel(migration: Migration, in_order: bool) -> Prediction | None:
    """All that the new tree does from empty states on, whose joins grow to their full rate within a window."""
    if migration.both is None or migration.window is None:
        return None
    at_full_rate = migration.both - migration.window / 2
    held = migration.answers * at_full_rate if in_order else 0.0
    return Prediction(
        "parallel-track",
        silence=0.0,
        seconds=migration.both,
        extra_rows=migration.arriving * migration.both + migration.joining * at_full_rate,
        extra_state_rows=sum(port.rows for port in migration.ports) + held,
    )


def _ports(
    query: LogicalQuery, before: Shape | None, after: Shape | None, estimates: Estimates
) -> tuple[PortRows, ...]:
    """The states of the new tree, with what is read to make them where the old tree is `before`."""
    there = {(inputs, key) for inputs, key, _ in _states(query, before)}
    held = {inputs for inputs, _ in there}
    ports = []
    for inputs, key, below in _states(query, after):
        is_shared = (inputs, key) in there
        if is_shared:
            read = 0.0
        elif inputs in held:
            # It is there under another key, and is re-partitioned.
            read = estimates.rows(inputs)
        else:
            read = sum(map(estimates.rows, below))
        ports.append(PortRows(inputs, key, estimates.rows(inputs), is_shared, read))
    return tuple(ports)


def _states(query: LogicalQuery, shape: Shape | None) -> list[tuple[Inputs, tuple[int, ...], list[Inputs]]]:
    """Per port of a tree the inputs that its rows are made of, its key, and the states they are joined from."""
    leaves = len(query.inputs)
    meetings = arrange(leaves, reaches(query.aliases, query.equalities), shape)
    holds = inputs_of_parts(leaves, meetings)
    below = [[] if part < leaves else [holds[p] for p in meetings[part - leaves].parts] for part in range(len(holds))]
    return [(holds[part], meeting.keys, below[part]) for meeting in meetings for part in meeting.parts]


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / MICROSECONDS
