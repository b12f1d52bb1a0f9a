"""Windowed GROUP BY and DISTINCT.

window_aggregate  the grouping as a stateful operator
functions         COUNT, SUM, AVG, STDDEV, MIN, MAX over ranges of rows
range_sums        what all rows that count for a place come to, for every place
"""
