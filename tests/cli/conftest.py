"""Commands in the process of the tests, with the Spark that it has: cheaper by the start of a JVM than `command`."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from anabranch.cli.demos import plan, stage
from anabranch.cli.main import app


class Invoke(Protocol):
    """Runs a command that has to succeed and say nothing on stderr; returns what it prints."""

    def __call__(self, *arguments: str, temporary: Path) -> str: ...


@pytest.fixture
def invoke(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Demos that get the session of the tests instead of one that they start and end."""
    for module in (plan, stage):
        monkeypatch.setattr(module, "embedded_spark", lambda **_: nullcontext(spark))

    def invoked(*arguments: str, temporary: Path) -> str:
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        shown = CliRunner().invoke(app, list(arguments))
        assert shown.exit_code == 0, shown.output
        assert shown.stderr == ""
        return shown.stdout

    return invoked
