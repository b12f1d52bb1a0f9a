"""`anabranch bench`: the list of benchmarks.

The engine's own are in `benchmarks`, the papers' figures in `papers`; both are imported when one of them is run.
"""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.process.deferred import Deferred, Load, command_in, command_of, deferred_group

# The benchmarks of the engine itself, each with a line that says what it measures.
ENGINE = {
    "throughput": "rows/s, batch time and memory, beside Spark's own stream-stream joins on the same input",
    "chain": "the same for four streams that are joined on three different keys",
    "shared": "two queries over one join beside one of them, and beside two that cannot share it",
    "groupby": "the same for aggregates over a window, beside transformWithState in Python",
    "memory": "state ten times as large as its memory: throughput, and memory of the Python processes",
    "flat": "batch time and memory while state grows tenfold, with many groups, and under a hot key",
    "relocation": "a gigabyte of state that moves between processors of a running query: time, and bytes copied",
    "diffusion": "a gigabyte of state in hot groups that are spread, switch roles and come back: time, and bytes "
    "written",
    "changes": "the pause that a query sees when others are added to its run and removed from it",
    "migration": "batches of a query with much state while it migrates to another order of its joins",
    "orders": "a join of four streams that starts in its worst order, in turn with one that starts in its best",
    "skew": "a join with a hot key: hash partitioned, diffused and by Spark itself, in turn",
}

# The figures of the papers, each with the claim that is checked, as in its experiment.
PAPERS = {
    "liu-06": "a small plan on 1 to 5 processors: the same output, and about the same throughput",
    "liu-07": "a large plan, nothing pushed to disk: the more processors, the later memory is exceeded, and never with "
    "enough",
    "liu-09": "the larger the share of state that is pushed to disk, the smaller the output before clean-up",
    "liu-10": "pushing keeps the active state within its memory, and the more is pushed at a time the fewer pushes "
    "there are",
    "liu-11": "groups with join ratios 4, 2 and 1: pushing the least productive beats pushing the most productive",
    "liu-12": "all groups with join ratio 3: pushing the least productive is not worse than pushing the most "
    "productive",
    "liu-14": "an alternating load: throughput does not depend on the difference at which relocation starts, 50% to "
    "90%",
    "liu-15": "an alternating load: throughput does not depend on the minimal time-span between relocations",
    "liu-16": "an alternating load: relocation keeps the memory of two processors even",
    "liu-17": "memory is enough, but not where most groups are: relocation keeps all in memory and beats spilling",
    "liu-20": "two thirds of the groups on one of three processors, too little memory: lazy-disk beats spilling alone",
    "liu-21": "groups of one processor with join ratio 4, of the others 1: active-disk overtakes lazy-disk",
    "flux-03": "external load that goes round four machines: the larger the buffer, the closer to what is possible",
    "flux-06": "external load on one of four machines: load balancing brings throughput back to what is possible",
    "flux-07": "external load on 0 to 3 of four machines: with load balancing throughput falls linearly, without it at "
    "once",
    "flux-09": "the memory of one processor is cut in half: memory balancing keeps throughput up, spilling alone does "
    "not",
    "flux-10": "the memory of one processor is cut in half: memory balancing brings latency back, spilling alone does "
    "not",
    "zhu-09": "the length of a parallel track grows evenly with W: W plus lateness here, 2W in the paper",
    "zhu-10": "the work of moving state is a polynomial in W: it computes states of W^2 and W^3 rows",
    "zhu-11": "the higher the rate of B, the more work is moving state; a parallel track takes as long as before",
    "zhu-12": "moving state is faster for small windows, a parallel track for large ones",
    "zhu-13": "low configuration: moving state has the new order's few intermediate rows earlier than a parallel track",
    "zhu-14": "low configuration: no strategy has a strong advantage in output, the silence of moving state is short",
    "zhu-15": "high configuration: both strategies come to the new order's intermediate rows; moving state has fewer "
    "at first",
    "zhu-16": "high configuration: a parallel track answers all the time, moving state pauses; the pause is short here",
    "dcape-placement": "20 operators: grouping needs fewer rounds than round robin, FewestRounds no more than "
    "grouping, and degradation halves the rows that a bad start exchanges",
}
BENCHMARKS = ENGINE | PAPERS


def _paper(name: str) -> Load:
    def load() -> typer.Typer:
        from anabranch.cli.papers import command_for

        return command_of(command_for(name))

    return load


bench = typer.Typer(
    cls=deferred_group(
        *(Deferred(name, line, command_in("anabranch.cli.benchmarks", name)) for name, line in ENGINE.items()),
        *(Deferred(name, line, _paper(name)) for name, line in PAPERS.items()),
    ),
    rich_markup_mode="markdown",
    add_completion=False,
    help="Measure Anabranch, beside Spark's own joins, against its own promises and against the papers' figures.",
)


@bench.callback(invoke_without_command=True)
def _bench(
    context: typer.Context,
    list_them: Annotated[bool, typer.Option("--list", help="List the benchmarks, one line each.")] = False,
) -> None:
    if list_them:
        width = max(map(len, BENCHMARKS))
        for name, line in BENCHMARKS.items():
            print(f"{name.ljust(width)}  {line}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
