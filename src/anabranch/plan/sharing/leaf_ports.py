"""Where in a network the rows of a query's inputs are stored.

A query's inputs have other names in the network if they share an operator with a query that was added first, and its
operators stand where the network has them. What both have in common are identities (`identity`), so inputs are found by
going through the query's operators.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.plan.network import Network, Request
from anabranch.plan.query import StreamSchema
from anabranch.plan.sharing.identity import CanonicalQuery, Demand


def leaf_ports(network: Network, request: Request, streams: Mapping[str, StreamSchema]) -> tuple[int, ...]:
    """Per input of a query the number of the port where a join stores its rows."""
    query = request.query
    canonical = CanonicalQuery(query, request.rows_since, streams, Demand(), request.track)
    operator_of = {operator.identity: n for n, operator in enumerate(network.operators)}
    numbers = {port: number for number, port in enumerate(network.ports)}
    ports = {
        part: numbers[operator_of[join.identity], p]
        for join in canonical.parts[len(query.inputs) :]
        for p, part in enumerate(join.parts)
    }
    return tuple(ports[n] for n in range(len(query.inputs)))
