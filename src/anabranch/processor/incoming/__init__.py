"""The rows that arrive in a step: told apart, set aside if they are bad or late, and made ready for their ports.

arrivals   bad rows, late rows, and the rest by port
long_rows  marks in place of rows that are too long to come
json_rows  rows as JSON, for those that are set aside
deltas     the rows that come to ports, before they are part of the state
"""
