"""The state of a migrating query's new operators, which run beside the old ones as its *shadow* (decision 023).

filling   they get their state from what is there
changing  which state a changed query goes on with, and what of it is lacking
feeding   rows that have to go through them once more, let through in pieces
"""
