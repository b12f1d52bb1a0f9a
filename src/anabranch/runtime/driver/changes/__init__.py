"""What changes a run between two batches, while it goes on.

manual          relocation, diffusion, rescaling, spilling and memory, as a user asks for them
key_groups      which partition groups the rows with some keys go to
measure_orders  what other orders of joins would cost
migration       another order of a query's joins
strategy        the strategy of a migration, where that is left to us
replacement     another query in the place of one, with its state
"""
