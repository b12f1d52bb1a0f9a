"""The state of operators: immutable sorted runs, the spines that list them, and the manifests that name both.

groups        partition groups: ranges of the key hash, and sets of them
runs/         sorted runs in files, merges of them, and the spine that lists those of an input
statistics    size, results and arrivals of each partition group
generation    what was spilled, and when
spill         spilling groups and bringing them together again
cut           cutting a group's rows into parts, and putting parts together
partition     moving partition groups (Flux's interface)
lagging       groups that are behind the others of their grouping
manifest      the state of one processor after one step
share         a processor's share of the state: what routings mean for manifests
broken_shares what breaks the rules of shares: rows at the wrong place, twice, or missing
report        a manifest with what was counted
store         how checkpoint files are written, all of them, and documents read
failpoints    named places where a test makes the process die
arrays/       what all of it is made of: order, indexes and bytes of Arrow columns, mapped files
"""
