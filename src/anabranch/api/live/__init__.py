"""The inside of a run that goes on.

live_run    the run itself: its queries, its checkpoint, and Spark's streaming query
deliveries  waiting until all rows are processed, or all postponed results are delivered
background  the threads beside a run: one waits for its end, one does the work that needs no batch
"""
