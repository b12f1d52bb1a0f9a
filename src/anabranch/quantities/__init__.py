"""Quantities as people write them.

duration  lengths of time, in whole microseconds
"""
