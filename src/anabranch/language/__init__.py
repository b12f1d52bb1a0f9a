"""The query language: from CQL text to a bound `ContinuousQuery`, or to an error a person can act on.

The path of a query through this package, one step per module:

    source       the text and its tokens; cutting, rewriting and pointing into it
    dialect      CQL for sqlglot: Spark SQL, and a window in brackets after a stream's name
    windows      what stands between those brackets
    clauses      the statement taken apart: FROM, conditions, grouping, SELECT items; every other clause refused
    derived      streams that sub-queries in FROM make of others
    scope        the streams in FROM, and what a name means among them
    expressions  one expression: which columns it reads, and its text below or above the join
    words        every word of an expression accounted for
    vocabulary   the functions and words an expression may and may not use
    items        the SELECT list, stars written out
    grouping     GROUP BY, HAVING and DISTINCT
    conjuncts    a condition split at its ANDs and an equality at its sign
    conditions   each conjunct of ON and WHERE, by what it is
    shape        the tree of joins that a user asks for
    binder       the whole way from a text to a query, by all of the above

Nothing here knows types: Spark checks those when it analyses the texts that the binder produces.
"""

from anabranch.language.binder import parse_query
from anabranch.quantities.duration import parse_duration

__all__ = ["parse_duration", "parse_query"]
