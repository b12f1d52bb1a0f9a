"""How long property tests look for counterexamples.

`ci`, the default, is quick and always tries the same examples, so that a red build is the fault of the change at hand.
`ANABRANCH_HYPOTHESIS=thorough` tries some sixty times as many, and others on every run; `soak` ten times as many, by
the seed that `make soak` gives.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("ANABRANCH_HYPOTHESIS", "ci")
FACTORS = {"ci": 0.3, "thorough": 20, "soak": 3}

settings.register_profile(
    "ci",
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("soak", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", deadline=None, suppress_health_check=[HealthCheck.too_slow])


def examples(number: int) -> Callable[..., object]:
    """Decorates a property: try `number` examples times the factor of the profile."""
    return settings(settings.get_profile(PROFILE), max_examples=max(1, round(number * FACTORS[PROFILE])))
