"""Quantities as people write them.

duration  lengths of time, in whole microseconds
clock     a clock that stands still until it is advanced, for tests
"""
