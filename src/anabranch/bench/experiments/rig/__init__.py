"""The parts that all experiments share.

workload    the inputs and their queries
variant     a way to run a query: settings, policies, perturbations
experiment  variants of one run, with claims that are checked
abreast     variants batch by batch in turn
machines    four slow machines, for the experiments of paper 2
trace       the measurements of one run, batch by batch
timing      typical times of batches over repeated runs
report      claims and traces as tables
draw        findings as a picture
"""
