"""Paper 3 (plan migration): one file per figure, and the runs, the model and the machine that several figures share."""
