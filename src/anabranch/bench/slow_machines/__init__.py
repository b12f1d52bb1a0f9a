"""Slow machines on one machine: processors of a run are held to a share of a core.

slowdown  the interface for benchmarks: shares of a core by processor
limiter   the process behind it, which stops and continues the workers
"""
