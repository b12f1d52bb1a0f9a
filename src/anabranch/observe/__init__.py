"""Observation of a run: events and numbers, rendered in one way everywhere.

events             events with their reasons; also logged
progress           the progress of a step as one value; rendered for `lastProgress`
diffused           diffused partition groups, and what diffusion costs
orders             orders of joins with their costs, as a table
numbers            bytes, counts and durations for people
story              the batches of a run so far, and sums over them
terminal           the panel that is redrawn while a run goes on
echo               a terminal that does not show typed keys
inspection         the contents of a checkpoint, as plain values
inspection_tables  the same as tables, for people
"""
