"""Slow machines on one machine: processors of a run are held to a share of a core.

slowdown  what a benchmark uses: shares by processor
limiter   the process behind it, which stops and continues the workers
"""
