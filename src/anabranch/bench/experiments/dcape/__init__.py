"""Paper 5 (D-CAPE): where the operators of a plan are, and what it costs.

stateless   the single-stream operator
input       the rows of the streams, and what they make at each operator, without running anything
plan        the thesis's plans of 5 and 20 operators, and what a placement of them costs
run         one run of a plan on Spark, batch by batch
trace       its counts
claims      the verdict: patterns, redistribution, an operator that moves, the manager itself
placement   the experiment, of all of these

All but `run` and `placement` know nothing of Spark.
"""
