"""Benchmarks: Anabranch beside the engines people use today, beside its own promises, and beside the papers' figures.

`throughput` runs one input through Anabranch and through Spark's own stream-stream joins; its options make it the
benchmarks `chain`, `shared` and `groupby`, too. `flat` checks that cost follows the work of a batch and not the size of
the history, `tight` that state may be larger than its memory. All are built from the same parts, in this order:

    recipe, flat_recipes   generate the input, once
    job                    describes one run of one engine
    child, memory          run it in a process of its own, and measure that process from outside
    contender              is that process: `queries` and `sliding` are what it is asked to run
    machine, raw_results   say what it ran on, and keep what was measured

`relocation` moves state of a query that runs in this process. `experiments` are the papers' figures; `slowdown` and
`limiter` make their machines slow.
"""
