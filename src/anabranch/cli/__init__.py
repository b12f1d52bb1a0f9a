"""The command line: one file per command, and what the commands share.

- main: wires the commands, which are imported when they are used (deferred)
- demo: a three-way join on generated streams, watched live and checked (demo_query, demo_streams); demo_plan: a plan as
  a story (traffic)
- run: a query described in a file (run_file and tables read it, launch starts it)
- inspect: what a checkpoint holds (survey reads it)
- clean_up: what a stopped run owes is delivered; remove: a query less in a stopped run
- bench: the list of benchmarks (benchmarks: of the engine itself; papers: the papers' figures; bench_output)
- embedded: a quiet Spark that ends with us
- watch: a run, followed to its end; wording: what is shown before it
- checkpoint_folder: the checkpoint that a command is given
- signals: Ctrl-C and its kin as one exception; failures: exceptions as one line and an exit code
"""
