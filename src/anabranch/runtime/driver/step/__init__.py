"""One step of a run, from the rows of a batch to the commit.

context    the parts that all steps under one plan share
times      the thresholds of a step: which rows are late, dead and settled
orders     the task of each processor in a step
take_step  the step itself: run the processors, deliver their answers, commit
commit     the end of a step: policies decide, the step counts, events are written
result     the settings that a step needs, and the result that it leaves for progress
counters   the rows and the time of all steps since the run was started
failure    the error that a user sees for a step that has failed
"""
