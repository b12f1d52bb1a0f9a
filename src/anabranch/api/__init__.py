"""The interface for users. Names that PySpark has are spelt and behave as in PySpark; ours are snake_case.

session           an embedded Spark, for those who have none
engine            registered streams and operators; `sql` makes queries of them, `start` begins a run
registration      checks of streams and of operators of your own
query             a continuous query, checked before any data flows
writer            the sink of an answer: `writeStream`
targets           the name of a query among others, and the sink that its writer describes
session_settings  the settings of the session, which have to be the same for a query and for its run
start             starts a run: checks the queries, takes the checkpoint, begins
run               queries that are being answered, as a user sees them
live/             the inside of a run, and the threads beside it
changes/          changes of a run: more, fewer and other queries, other orders of joins
progress          the progress of steps, and its place in Spark's `lastProgress`
picture           the plan, drawn
record            the record of a run's streams, queries and sinks in its checkpoint
stopped_run       delivers the results that a stopped run owes, from that record
synthetic         the papers' streams as a source that Spark reads
testing/          queries tested step by step, without Structured Streaming; users import `anabranch.testing`
"""
