"""Paper 1 (Liu et al.): one file per figure; `pushes`, `orders`, `alternating` and `uneven` have
the runs that several share."""
