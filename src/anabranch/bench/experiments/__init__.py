"""The papers' experiments, one file each, named after author and figure; each states its claims and checks them.

rig/   the parts that experiments share: inputs, variants, traces, claims, pictures
liu/   paper 1: spilling and relocation
flux/  paper 2: load and memory balancing of a windowed group-by
zhu/   paper 3: migration to another order of joins
dcape/ paper 5: where operators are, and what that costs
"""

from __future__ import annotations

from anabranch.bench.experiments.dcape.placement import DCAPE_PLACEMENT, PlacementExperiment
from anabranch.bench.experiments.flux.fig_03 import FLUX_03
from anabranch.bench.experiments.flux.fig_06 import FLUX_06
from anabranch.bench.experiments.flux.fig_07 import FLUX_07
from anabranch.bench.experiments.flux.fig_09 import FLUX_09
from anabranch.bench.experiments.flux.fig_10 import FLUX_10
from anabranch.bench.experiments.liu.fig_06 import LIU_06
from anabranch.bench.experiments.liu.fig_07 import LIU_07
from anabranch.bench.experiments.liu.fig_09 import LIU_09
from anabranch.bench.experiments.liu.fig_10 import LIU_10
from anabranch.bench.experiments.liu.fig_11 import LIU_11
from anabranch.bench.experiments.liu.fig_12 import LIU_12
from anabranch.bench.experiments.liu.fig_14 import LIU_14
from anabranch.bench.experiments.liu.fig_15 import LIU_15
from anabranch.bench.experiments.liu.fig_16 import LIU_16
from anabranch.bench.experiments.liu.fig_17 import LIU_17
from anabranch.bench.experiments.liu.fig_20 import LIU_20
from anabranch.bench.experiments.liu.fig_21 import LIU_21
from anabranch.bench.experiments.rig.experiment import Experiment
from anabranch.bench.experiments.zhu.fig_09 import ZHU_09
from anabranch.bench.experiments.zhu.fig_10 import ZHU_10
from anabranch.bench.experiments.zhu.fig_11 import ZHU_11
from anabranch.bench.experiments.zhu.fig_12 import ZHU_12
from anabranch.bench.experiments.zhu.fig_13 import ZHU_13
from anabranch.bench.experiments.zhu.fig_14 import ZHU_14
from anabranch.bench.experiments.zhu.fig_15 import ZHU_15
from anabranch.bench.experiments.zhu.fig_16 import ZHU_16
from anabranch.bench.experiments.zhu.parts.experiment import MigrationExperiment

LIU = (LIU_06, LIU_07, LIU_09, LIU_10, LIU_11, LIU_12, LIU_14, LIU_15, LIU_16, LIU_17, LIU_20, LIU_21)
FLUX = (FLUX_03, FLUX_06, FLUX_07, FLUX_09, FLUX_10)
ZHU = (ZHU_09, ZHU_10, ZHU_11, ZHU_12, ZHU_13, ZHU_14, ZHU_15, ZHU_16)

DCAPE = (DCAPE_PLACEMENT,)

EXPERIMENTS: tuple[Experiment | MigrationExperiment | PlacementExperiment, ...] = (*LIU, *FLUX, *ZHU, *DCAPE)
