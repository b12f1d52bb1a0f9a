"""Streams to try things out on: the papers' generators. `api/synthetic` lets Spark read them."""
