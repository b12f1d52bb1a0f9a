"""Streams to try things out on: the papers' generators, pure and as a source that Spark can read."""
