"""Filling the state of a shadow's operators from that of the operators beside them (paper 3, section 4.1).

A query that migrates has its old operators and its new ones, its *shadow*, side by side in one network. Of each port of
the shadow one of these holds:

- *listed*: a port there is already holds the same rows, hashed on the same key. They are listed twice; nothing is
  copied.
- *rehashed*: it holds the same rows, hashed on another key. They are hashed anew, sent to their owners and written.
- *computed*: nobody holds such rows. They come out of the operators below, as ever.

An operator whose results somebody has to compute, while its own ports are all there, would never give them: nothing
arrives. So one of its ports is *fed*: its rows wait there (`held`), and when they are let go on they meet all that is
at the other ports, as if they had only just arrived. What arrives at the shadow meanwhile is joined like anything else,
so each joined row comes into being once, whichever of its rows came last.

Joined rows are computed from what is at the leaves, so these must not have forgotten anything. They have not: what is
kept at a port depends on the query and not on the order of its joins (`plan/watermark`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.errors import ConfigError
from anabranch.manager.distribution import Distribution
from anabranch.plan.network import Network
from anabranch.plan.sharing.port_state import PortState
from anabranch.state.groups import GroupSet
from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.slice import Cuts, Slice, SortedRun, slices_of_groups
from anabranch.state.runs.spine import Spine
from anabranch.state.share import home_groups
from anabranch.state.spill import bytes_by_group, rows_by_group
from anabranch.state.statistics import Statistics

# By port and processor: the files with rows that were hashed anew.
Rehashed = Mapping[int, Sequence[Sequence[RunFile]]]


@dataclass(frozen=True, slots=True)
class Filling:
    """Where the rows of a shadow's ports come from: by port, the port that is `listed` there or `rehashed` for it.

    The rows of `fed` ports wait, and are let through in pieces; `computed` ports get theirs from below. Of what is
    written anew, `selected` says which rows, if not all of them, and those at `same_key` ports keep the hash they have.
    """

    listed: Mapping[int, int] = field(default_factory=dict)
    rehashed: Mapping[int, int] = field(default_factory=dict)
    fed: frozenset[int] = frozenset()
    computed: frozenset[int] = frozenset()
    selected: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    same_key: frozenset[int] = frozenset()


def planned_filling(network: Network, name: str) -> Filling:
    """How the shadow of a query is filled. Refused if an input's rows are nowhere to be had.

    Only from the query's own joins: those of another query may hold the same rows, but forget them by its streams.
    """
    numbers = {port: number for number, port in enumerate(network.ports)}
    held = _held_by(network, network.joins_of(name))
    listed: dict[int, int] = {}
    rehashed: dict[int, int] = {}
    computed: set[int] = set()
    computing: set[int] = set()  # operators with a port that is computed, or one below that has
    for n, operator in enumerate(network.operators):
        if not network.is_shadow(n):
            continue
        for p, port in enumerate(operator.ports):
            number, below = numbers[n, p], network.operator_of(port.node)
            those = [of for of, state in held.get(_rows(port.state), ()) if state.columns >= port.state.columns]
            same = [of for of in those if _state(network, of).identity == port.state.identity]
            if below is not None and (below in computing or not same):
                computed.add(number)
                computing.add(n)
            elif same:
                listed[number] = same[0]
            elif those:
                rehashed[number] = those[0]
            else:
                alias = network.inputs[port.node].entry.alias.lstrip(":")
                raise ConfigError(
                    f"of {alias} the state does not have all columns that this order needs; choose another order, or "
                    "start the query with a new checkpoint"
                )
    return Filling(listed, rehashed, fed_ports(network, computed, rehashed), frozenset(computed))


def fed_ports(network: Network, computed: Collection[int], rehashed: Collection[int]) -> frozenset[int]:
    """A port of each lowest operator whose results have to be computed: its rows are let through."""
    numbers = {port: number for number, port in enumerate(network.ports)}
    below = {number: network.operator_of(network.operators[n].ports[p].node) for (n, p), number in numbers.items()}
    computing = {network.ports[number][0] for number in computed}
    fed = set()
    for number in computed:
        lower = below[number]
        assert lower is not None, "rows of an input are not computed"
        if lower not in computing:
            own = [numbers[lower, q] for q in range(len(network.operators[lower].ports))]
            fed.add(next((port for port in own if port in rehashed), own[0]))
    return frozenset(fed)


def rows_at(manifest: Manifest, port: int, owners: Sequence[int]) -> list[SortedRun]:
    """All rows of a port on a processor as sorted runs: active, spilled, and waiting."""
    spine, state = manifest.spines[port], manifest.operators[owners[port]]
    nth = list(owners[:port]).count(owners[port])
    runs = [*spine.runs]
    for merge in spine.merges:
        runs += [merge.target, *merge.sources]
    runs += [(piece,) for generation in state.generations for piece in generation.ports[nth]]
    runs += [(piece,) for piece in (state.held[nth] if state.held else ())]
    return [run for run in runs if run]


def filled(
    distribution: Distribution,
    filling: Filling,
    owners: Sequence[int],
    rehashed: Rehashed,
    cuts: Cuts,
    now: float,
) -> Distribution:
    """The distribution with the state of the shadow's ports, each row where its group is; `owners` are per port."""
    for port in (*filling.listed.values(), *filling.rehashed.values()):
        assert not distribution.routings[owners[port]].diffused, "what is diffused has to be gathered first"
    runs = {
        port: [run for manifest in distribution.manifests for run in rows_at(manifest, of, owners)]
        for port, of in filling.listed.items()
    }
    manifests = []
    for p, manifest in enumerate(distribution.manifests):
        own: dict[int, list[SortedRun]] = {}
        for port, those in runs.items():
            groups = home_groups(distribution.routings[owners[port]], p)
            cut = (slices_of_groups(run, groups, cuts) for run in those)
            own[port] = [run for run in cut if run]
        for port, files in rehashed.items():
            own[port] = [(Slice(file, 0, file.rows),) for file in files[p]]
        manifests.append(_with_rows(manifest, own, filling.fed, owners, cuts, distribution.groups, now))
    return replace(distribution, manifests=tuple(manifests))


def waiting_rows(
    distribution: Distribution, fed: frozenset[int], owners: Sequence[int], cuts: Cuts
) -> dict[int, np.ndarray]:
    """By operator with a fed port: how many rows of it wait, by group."""
    waiting = {}
    for operator in {owners[port] for port in fed}:
        counts = np.zeros(distribution.groups, dtype=np.int64)
        for manifest in distribution.manifests:
            pieces = (piece for slices in manifest.operators[operator].held for piece in slices)
            counts += rows_by_group(pieces, distribution.groups, cuts)
        waiting[operator] = counts
    return waiting


def next_hold(waiting: Mapping[int, np.ndarray], pace: int) -> dict[int, GroupSet]:
    """The groups whose rows wait for one more step, by operator: all but as many as make up `pace` rows, at least one
    group of each operator."""
    hold = {}
    for operator, rows in waiting.items():
        present = np.flatnonzero(rows)
        goes_on = np.cumsum(rows[present]) <= pace
        goes_on[:1] = True
        rest = present[~goes_on]
        if len(rest):
            hold[operator] = GroupSet.of(len(rows), rest.tolist())
    return hold


def _with_rows(
    manifest: Manifest,
    own: Mapping[int, Sequence[SortedRun]],
    fed: frozenset[int],
    owners: Sequence[int],
    cuts: Cuts,
    groups: int,
    now: float,
) -> Manifest:
    """A processor's manifest with rows at some ports; those of fed ports wait."""
    spines, states = list(manifest.spines), list(manifest.operators)
    for port, runs in own.items():
        if port not in fed:
            spines[port] = Spine(tuple(runs))
    for operator in {owners[port] for port in own}:
        ports = [port for port, owner in enumerate(owners) if owner == operator]
        active = (piece for port in ports for piece in spines[port].slices())
        sizes = bytes_by_group(active, groups, cuts)
        held = tuple(
            tuple(piece for run in own.get(port, ()) for piece in run) if port in fed else () for port in ports
        )
        nothing = np.zeros(groups, dtype=np.int64)
        known = Statistics(
            np.arange(groups),
            sizes,
            nothing,
            nothing.astype(np.float64),
            np.where(sizes > 0, now, 0.0),
            np.zeros((groups, len(ports)), dtype=np.int64),
        )
        states[operator] = OperatorState(statistics=known.present(), held=held if any(held) else ())
    return Manifest(tuple(spines), tuple(states))


def _held_by(network: Network, joins: Collection[int]) -> dict[tuple[object, object], list[tuple[int, PortState]]]:
    """The ports of some joins, by what lies there, whatever it is hashed on."""
    held: dict[tuple[object, object], list[tuple[int, PortState]]] = {}
    for number, (n, p) in enumerate(network.ports):
        if n in joins:
            state = network.operators[n].ports[p].state
            held.setdefault(_rows(state), []).append((number, state))
    return held


def _rows(state: PortState) -> tuple[object, object]:
    return state.identity.holds, state.identity.conditions


def _state(network: Network, port: int) -> PortState:
    n, p = network.ports[port]
    return network.operators[n].ports[p].state
