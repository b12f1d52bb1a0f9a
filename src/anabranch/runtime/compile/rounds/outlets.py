"""Outlets: how the rows of an answer leave, and which part of making them is left to Spark."""

from __future__ import annotations

from pyspark.sql import types as T

from anabranch.kernel.expression import Fused
from anabranch.plan.network import Feed, Network
from anabranch.plan.query import quote
from anabranch.runtime.compile.columns import Columns
from anabranch.runtime.compile.layout import Outlet
from anabranch.runtime.compile.rounds.lanes import is_read
from anabranch.runtime.rows.carried import carried_type, is_changed

# Pairs of a column's name in the answer and its name in the results of an operator, or the expression for it.
Picked = tuple[tuple[str, str], ...]
Computed = tuple[tuple[str, Fused], ...]


def outlet(network: Network, columns: Columns, branch: Feed) -> Outlet:
    """The outlet of an answer: rows in their final form if processors can make it; otherwise Spark does the rest."""
    n, fields = network.operator_of(branch.node), columns.fields(branch.node)
    by_user = n is not None and columns.is_user_operator(n)
    name_of = str if by_user else columns.result_name
    fused = () if by_user else columns.fuse_first(branch.node, branch.conditions)
    conditions = branch.conditions[len(fused) :]
    final = not conditions and not is_changed(T.StructType(fields)) and not by_user
    made = _made_by_processors(columns, branch, fields) if final else None
    if made is not None:
        picked, computed, fields = made
    else:
        # What is carried for others stays behind.
        texts = [*conditions, *(output.expression for output in branch.outputs)]
        fields = [field for field in fields if is_read(field, texts)] or fields[:1]
        picked, computed = tuple((field.name, name_of(field.name)) for field in fields), ()
    return Outlet(
        node=branch.node,
        picked=picked,
        fused=fused,
        computed=computed,
        conditions=conditions,
        outputs=None if made is not None else branch.outputs,
        result_schema=T.StructType([T.StructField(f.name, carried_type(f.dataType)) for f in fields]),
        joined_schema=T.StructType(fields),
    )


def _made_by_processors(
    columns: Columns, branch: Feed, fields: list[T.StructField]
) -> tuple[Picked, Computed, list[T.StructField]] | None:
    """The columns of an answer as processors make them: picked if all are plain, else computed. None if Spark has to
    compute one."""
    by_text = {quote(field.name): field for field in fields}
    if all(output.expression in by_text for output in branch.outputs):
        picked = tuple((output.name, columns.result_name(by_text[output.expression].name)) for output in branch.outputs)
        return picked, (), [T.StructField(o.name, by_text[o.expression].dataType) for o in branch.outputs]
    fused = columns.fuse_first(branch.node, [output.expression for output in branch.outputs])
    if len(fused) < len(branch.outputs):
        return None
    names = (output.name for output in branch.outputs)
    return (), tuple(zip(names, fused, strict=True)), columns.types_of(branch.node, branch.outputs)
