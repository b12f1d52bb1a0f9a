"""Who decides: what is known between two batches, and pure functions from that to actions."""
