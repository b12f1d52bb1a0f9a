"""The join that a processor runs for an operator of a network: which columns its results have, and its windows."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.kernel.join.combinations import JoinShape
from anabranch.kernel.join.window_join import ResultColumn, WindowJoin
from anabranch.kernel.operator import EXPIRY
from anabranch.plan.network import Network
from anabranch.plan.query import joined_column
from anabranch.processor.tasks import Destination, DestinationKind
from anabranch.runtime.compile.columns import Columns, time_name
from anabranch.state.runs.run import HASH, TS


def window_join(network: Network, columns: Columns, n: int, destinations: Sequence[Destination]) -> WindowJoin:
    """A join whose results have every column that one of its destinations picks."""
    node = len(network.inputs) + n
    wanted = dict.fromkeys(name for destination in destinations for name in sorted(destination.reads))
    hashed = any(name == HASH for destination in destinations for _, name in destination.picked)
    times = [time_name(i) for i in columns.timed(node)]
    goes_on = columns.is_timed(n) and any(entry.kind is not DestinationKind.SINK for entry in destinations)
    if goes_on:
        wanted |= dict.fromkeys(times)
    origins = _origins(network, columns, n)
    results = [ResultColumn(name, *origins[name]) for name in wanted if name in origins]
    if not results:
        any_name = next(iter(origins))  # without a column there would be no rows
        results = [ResultColumn(any_name, *origins[any_name])]
    if hashed:
        stored = [name for name in columns.verified(n) if name in wanted]
        results += [ResultColumn(name, 0, name) for name in (HASH, *stored)]
    windows = [(time_name(i), window) for i, window in columns.windows(node)] if EXPIRY in wanted else []
    shape = _shape(network, columns, n, keep=(*((HASH,) if hashed else ()), *((TS,) if goes_on else ())))
    return WindowJoin(shape, tuple(results), tuple(times) if goes_on else None, tuple(windows))


def _origins(network: Network, columns: Columns, n: int) -> dict[str, tuple[int, str]]:
    """By name of a result column: the port whose state has it, and its name there."""
    origins: dict[str, tuple[int, str]] = {}
    for p, port in enumerate(network.operators[n].ports):
        for column in port.columns:
            origins[columns.result_name(joined_column(*column))] = p, columns.stored(port, column)
        for i in columns.timed(port.node):
            origins[time_name(i)] = p, columns.stored_time(port, i)
    return origins


def _shape(network: Network, columns: Columns, n: int, keep: tuple[str, ...]) -> JoinShape:
    windows, times = [], []
    for port in network.operators[n].ports:
        timed = columns.timed(port.node)
        windows.append(min((columns.window(i) for i in timed), default=None))
        joined = network.operator_of(port.node) is not None
        expiries = [(columns.stored_time(port, i), columns.window(i)) for i in timed]
        times.append(tuple(expiries) if joined else ())
    return JoinShape(tuple(windows), columns.verified(n), tuple(times) if any(times) else (), keep)
