"""What the demos show: a shop's streams and the question about them, and the roads of `demo plan`."""
