"""Four machines on two cores, for the experiments of paper 2 with processing load (sections 4 and 5.4).

Each of four processors is held to a small share of a core, a *machine*, so that two cores are enough for all of them
and Spark's own work beside them. A machine with external load gets less: the paper's extra process takes 57% of a
machine, ours 60%. The operator is the paper's windowed group-by, with tuples spread evenly over the groups. Statistics
are over more than a few tuples, so that the work on them is a good part of a batch, and more than letting them wait.

All variants run abreast, and one of them has no load. Its batches show what the remaining capacity allows: the
processors' part of a batch, that of the slowest, would take longer, the rest of it as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from anabranch.bench.experiments.rig.trace import Trace
from anabranch.bench.experiments.rig.variant import SlowDown, Variant
from anabranch.bench.experiments.rig.workload import GroupWorkload
from anabranch.manager.policies.flux import FluxLoad
from anabranch.manager.snapshot import Policy

MACHINES = 4
GROUPS = 64
MACHINE = 0.3  # of a core
LEFT = 0.4  # of a machine with external load
TUPLES = 80_000  # per batch
HISTORY = 32  # tuples of a group


# The number of batches in which state is merged once, which takes longer. Whole turns are compared with each other.
TURN = 7


def workload(batches: int, tuples: int = TUPLES) -> GroupWorkload:
    """The windowed group-by, for a number of batches."""
    return GroupWorkload(rows=tuples * batches, batch_count=batches, keys=16_384, history=HISTORY)


def loaded(batch: int, *machines: int) -> SlowDown:
    """External load on these machines and no others, from a batch on."""
    return SlowDown(batch, tuple(MACHINE * (LEFT if machine in machines else 1) for machine in range(MACHINES)))


def variant(name: str, policies: tuple[Policy, ...], *loads: SlowDown, groups: int = GROUPS) -> Variant:
    """A variant on four machines with these loads."""
    return Variant(name, policies=policies, processors=MACHINES, groups=groups, perturbations=loads)


def balancing() -> tuple[Policy, ...]:
    """Flux's load balancing; a round takes four batches or more, so several partitions move at a time."""
    return (FluxLoad(per_round=4),)


def capacity(slow: int) -> float:
    """The capacity of all machines that is left when some have external load, as a share."""
    return (MACHINES - slow * (1 - LEFT)) / MACHINES


def throughput(trace: Trace, batches: Iterable[int]) -> float:
    """Tuples per second in the median of some batches, since other programs use the real machine, too."""
    return _median_rate(trace, trace.batch_seconds, batches)


def beside(trace: Trace, unloaded: Trace, batches: Iterable[tuple[int, int]]) -> float:
    """Throughput in the median of some batches, each as a share of that in a batch of a run without load. The two were
    worked on at nearly the same time, so that other load on the machine meets both."""
    rate, other = (_rates(run, run.batch_seconds) for run in (trace, unloaded))
    return median(rate[n] / other[m] for n, m in batches)


def allowed(unloaded: Trace, slow: int, batches: Iterable[int]) -> float:
    """Tuples per second in these batches with the capacity that loaded machines leave, computed from a run without
    load."""
    return _median_rate(unloaded, allowed_seconds(unloaded, slow), batches)


def allowed_seconds(unloaded: Trace, slow: int) -> list[float]:
    """The seconds that batches of a run without load would take with the capacity that loaded machines leave."""
    slowest = [max(processor.busy for processor in moment.processors) for moment in unloaded.moments]
    return [
        seconds + busy / capacity(slow) - busy for seconds, busy in zip(unloaded.batch_seconds, slowest, strict=True)
    ]


def _median_rate(trace: Trace, seconds: Sequence[float], batches: Iterable[int]) -> float:
    rates = _rates(trace, seconds)
    return median(rates[n] for n in batches)


def _rates(trace: Trace, seconds: Sequence[float]) -> list[float]:
    return [rows / took for rows, took in zip(trace.batch_rows, seconds, strict=True)]
