"""Policies, one family per file. A policy looks at a snapshot and yields actions; it does nothing itself.

What is not imported below serves several of them: `redistribution` (when operators are moved, and how calmly),
`flux_rounds` (the rounds of Flux), `hot_groups/` (which groups are hot, and how to spread them), `arguments` (checks of
what users give). `clean_up` is the policy that every run has.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import ConfigError
from anabranch.manager.policies.active_disk import ActiveDisk
from anabranch.manager.policies.adaptive import Adaptive
from anabranch.manager.policies.auto_migrate import AutoMigrate
from anabranch.manager.policies.balance import Balance
from anabranch.manager.policies.degradation import Degradation
from anabranch.manager.policies.diffusion import Diffusion
from anabranch.manager.policies.flux import FluxHybrid, FluxLoad, FluxMemory
from anabranch.manager.policies.lazy_disk import LazyDisk
from anabranch.manager.policies.skew_buffer import SkewBuffer
from anabranch.manager.policies.spill import Spill

# The name of all policies together, arbitrated.
ADAPTIVE = "adaptive"

# By the name that configuration files use.
POLICIES = {
    ADAPTIVE: Adaptive,
    "spill": Spill,
    "lazy-disk": LazyDisk,
    "active-disk": ActiveDisk,
    "flux-load": FluxLoad,
    "flux-memory": FluxMemory,
    "flux-hybrid": FluxHybrid,
    "skew-buffer": SkewBuffer,
    "auto-migrate": AutoMigrate,
    "diffusion": Diffusion,
    "balance": Balance,
    "degradation": Degradation,
}


def check_policies(policies: object) -> None:
    """Refuse what is no list of policies, with what was probably meant."""
    if _decides(policies):
        raise ConfigError(f"policies are a list: write policies=[{policies!r}]")
    if not isinstance(policies, Sequence) or isinstance(policies, str):
        raise ConfigError(f"policies must be {ADAPTIVE!r} or a list, such as [ab.Spill()], not {policies!r}")
    for policy in policies:
        if isinstance(policy, type) and callable(getattr(policy, "decide", None)):
            raise ConfigError(f"policies are objects: write {policy.__name__}() instead of {policy.__name__}")
        if isinstance(policy, str) and policy in POLICIES:
            raise ConfigError(f"policies are objects: write ab.{POLICIES[policy].__name__}() instead of {policy!r}")
        if not _decides(policy):
            raise ConfigError(f"policies must be such as ab.Spill(), not {policy!r}")


def _decides(policy: object) -> bool:
    return not isinstance(policy, type) and callable(getattr(policy, "decide", None))
