"""Paper 1 (Liu et al.): one file per figure, and the runs that several figures share."""
