"""The computing of results: Arrow in, Arrow out, NumPy in between; no Spark, no storage, no loop per row.

operator    the contract of a stateful operator
delta       the rows of a batch, sorted out by port
probe       finding, narrowing and expanding ranges of sorted rows
lookup      rows of some keys and times at a port
expression  expressions that have Spark's meaning
constants   how long kernels take per row, for the cost model of plan changes
join/       joins: the rows of all inputs that share a hash are gathered, then enumerated
aggregate/  GROUP BY and DISTINCT over windows
"""
