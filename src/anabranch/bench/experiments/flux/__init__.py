"""Paper 2 (Flux): one file per figure, and the runs that several figures share."""
