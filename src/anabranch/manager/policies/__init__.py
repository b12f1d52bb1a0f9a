"""Policies, one family per file. A policy looks at a snapshot and yields actions; it does nothing itself."""
