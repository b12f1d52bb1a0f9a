"""What a user touches. Names that PySpark has are spelt and behave as in PySpark; ours are snake_case.

session            an embedded Spark, for those who have none
engine             registered streams and operators; `sql` makes queries of them, `start` begins a run
query              a continuous query, checked before any data flows
writer             where its answer goes: `writeStream`
targets            what a query is called among others, and the sink that its writer describes
start              checks what was asked for, takes the checkpoint, begins
run                queries that are being answered: progress, events, changes while they run
background         what goes on beside a run, in threads of its own
changes            what a change of a running run has to keep to
changing           another query in the place of one, with its state
migrating          joins in another order while a run goes on, and the handle of that
policy_migrations  migrations that policies decide on
plans              the orders in which joins could run, with what they cost
progress           the progress of steps, and how it meets Spark's in `lastProgress`
picture            the plan, drawn
session_settings   the settings that queries were made under have to be those of the run
record             what a run is made of, put on record in its checkpoint
stopped_run        what a stopped run owes is delivered from that record
synthetic          the papers' streams as a source that Spark reads
testing            queries tested step by step, without Structured Streaming; users import `anabranch.testing`
"""
