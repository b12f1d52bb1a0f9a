"""Which streams meet where: join operators out of the equalities between streams.

Equal terms form classes (`plan/join_keys`). Here all that counts of a class is which inputs have a term in it.
Parts of the plan, at first the single inputs, are joined until one is left. An operator joins two or more parts on the
classes that have a term in *every* one of them, its keys, so that tuples that join meet in one partition group. A class
with terms in some of the parts only is checked on the operator's results. So inside a part all terms of a class are
equal, and any one of them can stand for the class when the part is joined to others.

Where nothing is said about the shape, the class that connects the most parts is taken first, in one m-way operator:
streams that share a key need one exchange and no intermediate state. Among equals the lowest in the plan goes first,
because the height of the plan is the number of exchanges that follow each other. A shape says which parts meet, as a
tree.

If the keys of one of the parts, itself an operator, are among the keys of the operator above, only they stay keys, and
the others become checks: the part's results are where they are needed already, and need no exchange (`rounds`).

Parts are numbered: inputs first, then operators in the order in which they are made; the last is the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# A shape is a number of an input, or a tuple of shapes that are joined by one operator.
Shape = int | tuple["Shape", ...]
# The inputs that have a term in a class.
InputNumbers = frozenset[int]


@dataclass(frozen=True, slots=True)
class Meeting:
    """A join operator: the parts it joins, and the numbers of the classes that are its keys and its checks."""

    parts: tuple[int, ...]
    keys: tuple[int, ...]
    checks: tuple[int, ...]


class UnconnectedError(ValueError):
    """Parts that no class connects; `parts` are the inputs in each."""

    def __init__(self, parts: Sequence[InputNumbers]) -> None:
        """Remember the parts, for a message that names them."""
        super().__init__(f"no equality connects {[sorted(part) for part in parts]}")
        self.parts = tuple(parts)


def arrange(inputs: int, classes: Sequence[InputNumbers], shape: Shape | None = None) -> tuple[Meeting, ...]:
    """The operators that join all inputs, children before parents. Raises `UnconnectedError` if inputs share no
    class."""
    made = _Arrangement(inputs, classes)
    if shape is None:
        made.join_most()
    else:
        made.follow(shape)
    return tuple(made.meetings)


class _Arrangement:
    def __init__(self, inputs: int, classes: Sequence[InputNumbers]) -> None:
        self._classes = classes
        self._inputs = [frozenset({n}) for n in range(inputs)]  # per part, the inputs in it
        self.meetings: list[Meeting] = []

    def join_most(self) -> None:
        """Join the parts that share a class, most parts first, then the lowest, until one part is left."""
        parts = list(range(len(self._inputs)))
        while len(parts) > 1:
            touched = [[p for p in parts if self._inputs[p] & inputs] for inputs in self._classes]
            chosen = min(touched, key=lambda those: (-len(those), max(map(self._depth, those), default=0)), default=[])
            if len(chosen) < 2:
                raise UnconnectedError([self._inputs[p] for p in parts])
            parts = [p for p in parts if p not in chosen] + [self._join(chosen)]

    def follow(self, shape: Shape) -> int:
        """Join as the shape says. Returns the number of the part that holds the result."""
        return shape if isinstance(shape, int) else self._join([self.follow(inner) for inner in shape])

    def _join(self, parts: Sequence[int]) -> int:
        touched = [sum(bool(self._inputs[p] & inputs) for p in parts) for inputs in self._classes]
        keys = [n for n, count in enumerate(touched) if count == len(parts)]
        if not keys:
            raise UnconnectedError([self._inputs[p] for p in parts])
        for keys_below in (self._keys_of(p) for p in parts):
            if keys_below and set(keys_below) < set(keys):
                keys = list(keys_below)
                break
        # What the part itself has joined on is equal within it, and is checked again only against other parts.
        checks = [n for n, count in enumerate(touched) if count > 1 and n not in keys]
        self.meetings.append(Meeting(tuple(parts), tuple(keys), tuple(checks)))
        self._inputs.append(frozenset().union(*(self._inputs[p] for p in parts)))
        return len(self._inputs) - 1

    def _operator(self, part: int) -> Meeting | None:
        leaves = len(self._inputs) - len(self.meetings)
        return self.meetings[part - leaves] if part >= leaves else None

    def _keys_of(self, part: int) -> tuple[int, ...]:
        operator = self._operator(part)
        return operator.keys if operator else ()

    def _depth(self, part: int) -> int:
        operator = self._operator(part)
        return 1 + max(map(self._depth, operator.parts)) if operator else 0
