"""Paper 2 (Flux): one file per figure; `memory_cut` has the runs that figures 9 and 10 share."""
