"""The papers' experiments, one file each, named after author and figure; each says what it claims and checks it."""

from __future__ import annotations

from anabranch.bench.experiments.experiment import Experiment
from anabranch.bench.experiments.liu_09 import LIU_09
from anabranch.bench.experiments.liu_10 import LIU_10
from anabranch.bench.experiments.liu_11 import LIU_11
from anabranch.bench.experiments.liu_12 import LIU_12

EXPERIMENTS: tuple[Experiment, ...] = (LIU_09, LIU_10, LIU_11, LIU_12)
