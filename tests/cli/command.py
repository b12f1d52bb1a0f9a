"""A command as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def start(*arguments: str, temporary: Path) -> subprocess.Popen[str]:
    """The command in a process of its own, with its temporary files where we can see them."""
    return subprocess.Popen(
        [sys.executable, "-m", "anabranch.cli.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
