"""The command line: one file per command, and the parts that commands share.

main          wires the commands, which are imported when they are used
demo          a three-way join on generated streams, watched live and checked; the group of the other demos
run           runs a query described in a file
inspect       shows the contents of a checkpoint
clean_up      delivers the results that a stopped run owes
remove        removes a query from a stopped run
bench         the list of benchmarks
benchmarks    the benchmarks of the engine itself, as commands
papers        the papers' figures, as commands
bench_output  the output of benchmarks: messages, tables, raw results
watch         follows a run to its end
wording       queries, plans and sentences, folded to the width of a terminal
demos/        the streams and the stories of the demos
run_files/    a query in a file: read, checked, started
process/      the command as a process: deferred imports, an embedded Spark, signals, exit codes
"""
