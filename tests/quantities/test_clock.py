"""The clock of tests."""

from __future__ import annotations

from datetime import timedelta

import pytest

from anabranch.errors import ConfigError
from anabranch.quantities.clock import Clock


def test_a_clock_stands_still_until_it_is_advanced_by_seconds_or_by_a_length() -> None:
    clock = Clock(10)
    assert (clock.now(), clock.now()) == (10.0, 10.0)
    clock.advance("1 minute 500 milliseconds")
    clock.advance(timedelta(seconds=1))
    clock.advance(1)
    assert clock.now() == 72.5


@pytest.mark.parametrize("length", [-1, "soon", "-1 second", float("nan"), float("inf"), True, None])
def test_a_clock_is_not_advanced_by_what_is_no_length_and_never_goes_back(length: object) -> None:
    clock = Clock()
    with pytest.raises(ConfigError, match="advanced"):
        clock.advance(length)  # type: ignore[arg-type]
    assert clock.now() == Clock().now()
