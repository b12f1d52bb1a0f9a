"""Paper 1 (Liu et al.): one file per figure; `pushes`, `orders` and `alternating` have the runs that several share."""
