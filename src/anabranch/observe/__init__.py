"""What a run tells about itself: events and numbers, rendered in one way everywhere.

events      what happened and why; also logged
progress    what a step has done, as one value; rendered for `lastProgress`
diffused    diffused partition groups, and what diffusion costs
orders      orders of joins with their costs, as a table
numbers     bytes, counts and durations for people
story       a run so far, as the terminal tells it
terminal    the panel that is redrawn while a run goes on
echo        a terminal that does not show what is typed
inspection  what a checkpoint holds, for people
"""
