"""Changes of a run while it goes on, made between two batches.

manual          relocation, diffusion, rescaling, spilling and memory by hand
key_groups      the partition groups that the rows with some keys go to
measure_orders  the measured costs of all orders of a query's joins
migration       to another order of a query's joins
strategy        the choice of a strategy for a migration, unless the user names one
reallocation    operators at other processors, in rounds that are compiled anew
replacement     of a query by another one that goes on with its state
"""
