"""Cost models: what each processor has to bear, and how much of that comes from which operator. One small file each.

    cost_table           the table that redistribution reads, and the only thing it reads
    memory_share         the share of its memory that a processor has used
    network_output_rate  rows that a processor sends to others (equations 6.1 and 6.2 of paper 5)
    cpu_time             the share of the time in which a processor computes
    row_cost             what an operator takes for a row and for a result; no cost model, but measured like one
    round_cost           what a round more costs every batch, measured

A cost model is any object with `costs(snapshot)`: for each processor, the cost of each operator there, in a unit of its
own. Costs of operators on one processor add up. With `text(cost)` it says how people read a cost. Redistribution knows
nothing of what costs mean, and cost models nothing of what becomes of them.
"""

from __future__ import annotations

from anabranch.manager.costs.cost_table import CostModel, CostTable, OperatorCost
from anabranch.manager.costs.cpu_time import CpuTime
from anabranch.manager.costs.memory_share import MemoryShare
from anabranch.manager.costs.network_output_rate import NetworkOutputRate

__all__ = ["CostModel", "CostTable", "CpuTime", "MemoryShare", "NetworkOutputRate", "OperatorCost"]
