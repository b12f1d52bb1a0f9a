"""The best orders of a query's joins, by dynamic programming over sets of inputs.

The orders that are searched are all trees, bushy ones and those with m-way operators included, whose operators have a
key: a class with a term in every part. So there are no cross products. What an order costs says `order_cost`; that is
a sum over operators, and what an operator adds depends on the sets of inputs that it joins and on the keys of the
operators below it, which may run fused with it. So of all trees over one set only the cheapest with the same key and
the same number of exchanges can be part of a cheapest tree (System R's principle with keys as interesting properties),
and only the `most` cheapest of those part of the `most` cheapest. They are combined lazily: the next best tree of a set
is a best one with one of its parts replaced by that part's next best.

A tree counts once, with its parts in the order of their first inputs, whatever their order. There is one exception: if
two parts are operators whose keys both could become the key of the operator above, the first part's does, so both
orders are searched.

Eight streams that all share one class have 660,032 trees, and take a fraction of a second, as chains, stars and a class
per pair do. What takes longer, up to a few seconds, are eight streams with nine or more classes of many streams that
overlap in different ways: then many sets have trees with many different keys.

Where exchanges are not ranked by first, trees that differ in nothing else that counts are not told apart below the
root. So they break a tie only between the trees that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import product
from math import prod
from typing import Literal, NamedTuple

from anabranch.plan.arrangement import Shape, arrange
from anabranch.plan.join_keys import reaches
from anabranch.plan.orders.join_estimates import Estimates
from anabranch.plan.orders.order_cost import JoinOrderCost, order_cost
from anabranch.plan.query import LogicalQuery

Wish = Literal["work", "latency", "memory"]

# What is compared first, second and third; of `work`, stored rows and exchanges, the least are the best.
RANKINGS: dict[Wish, Callable[[JoinOrderCost], tuple[float, ...]]] = {
    "work": lambda cost: (cost.work, cost.intermediate_rows, cost.exchanges),
    "latency": lambda cost: (cost.exchanges, cost.work, cost.intermediate_rows),
    "memory": lambda cost: (cost.intermediate_rows, cost.work, cost.exchanges),
}

# Sets of inputs, and of classes, as bits.
Bits = int
UNSHARED: Bits = -1
# What is summed up over operators: the wish's first among work and stored rows, then the other.
Sum = tuple[float, float]


class _State(NamedTuple):
    """What the operator above has to know of a tree: the key of its root, and in how many exchanges it runs.

    The key is `UNSHARED` where no operator above can have it, as a class of it is not in any other input. Exchanges are
    counted only where they are ranked by, else 0.
    """

    keys: Bits
    exchanges: int


@dataclass(frozen=True, slots=True)
class _Tree:
    cost: Sum
    shape: Shape


@dataclass(frozen=True, slots=True)
class _Joined:
    """A root over trees of certain states: what it adds, and per part the trees to choose from, cheapest first."""

    adds: Sum
    choices: tuple[Sequence[_Tree], ...]

    def cost(self, ranks: Sequence[int]) -> Sum:
        first, second = self.adds
        for trees, rank in zip(self.choices, ranks, strict=True):
            more, and_more = trees[rank].cost
            first, second = first + more, second + and_more
        return first, second

    def tree(self, ranks: Sequence[int]) -> _Tree:
        shape = tuple(trees[rank].shape for trees, rank in zip(self.choices, ranks, strict=True))
        return _Tree(self.cost(ranks), shape)


# The trees over one set of inputs: per state the cheapest.
_Trees = dict[_State, list[_Tree]]


def best_orders(query: LogicalQuery, estimates: Estimates, wish: Wish = "work", most: int = 10) -> list[JoinOrderCost]:
    """The `most` best orders, best first: by "work", by "latency" (fewest exchanges), or by "memory" (fewest rows).

    Raises `UnconnectedError` if parts of the query have nothing in common.
    """
    # Whatever can be joined at all can be in the order that is taken where nothing is said; this raises if it cannot.
    arrange(len(query.inputs), reaches(query.aliases, query.equalities))
    trees = _Search(query, estimates, wish, most).trees_of_all()
    ranking = RANKINGS[wish]
    costs = [order_cost(query, tree.shape, estimates) for same in trees.values() for tree in same]
    return sorted(costs, key=lambda cost: (*ranking(cost), cost.text))[:most]


class _Search:
    """The tables of one search: sizes per set of inputs, then trees, smaller sets first."""

    def __init__(self, query: LogicalQuery, estimates: Estimates, wish: Wish, most: int) -> None:
        self._most = most
        self._by_rows = wish == "memory"
        self._by_exchanges = wish == "latency"
        self._inputs = len(query.inputs)
        classes = reaches(query.aliases, query.equalities)
        self._equal = [estimates.equal_share(n) for n in range(len(classes))]
        self._rate, self._rows, self._touched = [0.0], [0.0], [0]
        for some in range(1, 1 << self._inputs):
            inputs = frozenset(_bits(some))
            self._rate.append(estimates.rate(inputs))
            self._rows.append(estimates.rows(inputs))
            self._touched.append(sum(1 << n for n, reach in enumerate(classes) if reach & inputs))

    def trees_of_all(self) -> _Trees:
        """The cheapest trees over all inputs, per state; none if they are not connected."""
        everything = (1 << self._inputs) - 1
        trees: dict[Bits, _Trees] = {1 << n: {_State(0, 0): [_Tree((0.0, 0.0), n)]} for n in range(self._inputs)}
        # A set is a greater number than each of its parts.
        for some in range(1, everything + 1):
            if some & (some - 1):
                joined: dict[_State, list[_Joined]] = {}
                for parts in self._partitions(some, trees):
                    self._join(some, parts, [trees[part] for part in parts], joined)
                if joined:
                    trees[some] = {state: list(_cheapest(roots, self._most)) for state, roots in joined.items()}
        return trees.get(everything, {})

    def _partitions(self, some: Bits, trees: dict[Bits, _Trees]) -> Iterator[tuple[Bits, ...]]:
        """All ways to part a set into two or more that have trees and a class in common, by their first inputs."""

        def parted(left: Bits, shared: Bits) -> Iterator[tuple[Bits, ...]]:
            if not left:
                yield ()
                return
            first = left & -left
            rest = left ^ first
            others = rest
            while True:
                part = first | others
                if part != some and part in trees and (common := shared & self._touched[part]):
                    for more in parted(left ^ part, common):
                        yield (part, *more)
                if not others:
                    return
                others = (others - 1) & rest

        return parted(some, -1)

    def _join(
        self, some: Bits, parts: Sequence[Bits], below: Sequence[_Trees], joined: dict[_State, list[_Joined]]
    ) -> None:
        """Add the operators that join trees over these parts."""
        shared = self._touched[parts[0]]
        for part in parts[1:]:
            shared &= self._touched[part]
        met: dict[Bits, float] = {}
        outside = self._touched[((1 << self._inputs) - 1) & ~some]
        coming = sum(self._rate[part] for part in parts)
        stored = sum(self._rows[part] for part in parts if part & (part - 1))
        for states in product(*below):
            for keys, order in _narrowed(shared, states):
                moved = [
                    (self._rate[part], state.exchanges)
                    for part, state in zip(parts, states, strict=True)
                    if state.keys != keys
                ]
                if keys not in met:
                    met[keys] = self._met(some, parts, keys)
                work = coming + sum(rate for rate, _ in moved) + met[keys]
                adds = (stored, work) if self._by_rows else (work, stored)
                choices = tuple(below[n][states[n]] for n in order)
                exchanges = 0
                if self._by_exchanges:
                    fused = max(state.exchanges for state in states)
                    exchanges = max(fused, *(count + 1 for _, count in moved)) if moved else fused
                state = _State(UNSHARED if keys & ~outside else keys, exchanges)
                joined.setdefault(state, []).append(_Joined(adds, choices))

    def _met(self, some: Bits, parts: Sequence[Bits], keys: Bits) -> float:
        """Combinations that meet on the key, as in `order_cost`."""
        passing = prod(
            self._equal[n] ** (count - 1)
            for n in _bits(self._touched[some] & ~keys)
            if (count := sum(self._touched[part] >> n & 1 for part in parts)) > 1
        )
        return self._rate[some] / passing if passing > 0 else self._rate[some]


def _narrowed(shared: Bits, states: Sequence[_State]) -> Iterator[tuple[Bits, Sequence[int]]]:
    """The keys that an operator can have, each with an order of its parts that brings it about (`arrangement`)."""
    order = range(len(states))
    options = {state.keys: n for n, state in reversed(list(enumerate(states))) if _is_within(state.keys, shared)}
    if not options:
        yield shared, order
    for keys, n in options.items():
        is_first = n == min(options.values())
        yield keys, order if is_first else [n, *(other for other in order if other != n)]


def _is_within(keys: Bits, shared: Bits) -> bool:
    """Whether the keys of an operator are some, but not all, of those that are shared."""
    return keys not in (0, shared, UNSHARED) and keys & ~shared == 0


def _cheapest(roots: Sequence[_Joined], most: int) -> Iterator[_Tree]:
    """The cheapest trees of all roots with all choices of what is below them."""
    heap = [(root.cost(ranks), n, ranks) for n, root in enumerate(roots) for ranks in [(0,) * len(root.choices)]]
    heapify(heap)
    pushed = {(n, ranks) for _, n, ranks in heap}
    for _ in range(most):
        if not heap:
            return
        _, n, ranks = heappop(heap)
        yield roots[n].tree(ranks)
        for place, trees in enumerate(roots[n].choices):
            following = (*ranks[:place], ranks[place] + 1, *ranks[place + 1 :])
            if following[place] < len(trees) and (n, following) not in pushed:
                pushed.add((n, following))
                heappush(heap, (roots[n].cost(following), n, following))


def _bits(number: Bits) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
