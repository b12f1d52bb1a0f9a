"""The inside of a run that goes on.

live_run    its queries, its checkpoint, the query of Spark's
deliveries  waiting until all is processed, or all that spilling has postponed is delivered
background  the threads beside a run: one waits for its end, one goes on without a batch
"""
