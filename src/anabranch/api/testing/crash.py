"""Crashes on purpose: the driver fails once at a named place of a step."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.state.failpoints import VARIABLE

# The places where a step can crash: around the call of the sink, and around the commit.
PLACES = ("before_sink", "after_sink", "before_commit", "after_commit")


@contextmanager
def crashing(place: str) -> Iterator[None]:
    """Inside, the first step that reaches the place raises `FailpointError`."""
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = f"step.{place}=raise@once:{Path(folder) / 'crashed'}"
        try:
            yield
        finally:
            if before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = before
