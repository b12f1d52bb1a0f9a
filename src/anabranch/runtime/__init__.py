"""Where it runs: the thin Spark shell around the pure kernel and state."""
