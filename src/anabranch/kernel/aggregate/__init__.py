"""Windowed GROUP BY and DISTINCT.

window_aggregate  the grouping as a stateful operator
functions         COUNT, SUM, AVG, STDDEV, MIN, MAX over ranges of rows
range_sums        for every place, the combination of all rows whose range includes it
"""
