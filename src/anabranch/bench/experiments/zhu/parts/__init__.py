"""The parts that the figures of paper 3 share.

setting         the settings of the paper's table 2, and their streams
case            one run in a setting, with a migration or without
experiment      cases with claims that are checked
configurations  the cases of figures 13 to 16
pictures        their pictures
trace           the counts of one run, step by step
model           the paper's equations, and the sizes that they predict here
work_clock      a machine that turns counts into times
overloaded      the machine of figures 15 and 16
"""
