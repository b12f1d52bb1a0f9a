"""Failpoints: named places where a test can make the process die or a task fail.

`ANABRANCH_FAILPOINT="name=kill"` kills the process (as kill -9 would) the first time the place is passed,
`"name=kill@3"` the third time; `=raise` raises instead, once per process; `=raise@once:PATH` once for all
processes, remembered by creating PATH, which names the process; `=full` raises what the system does when a disk is
full; `=pause` waits for a minute, so that the test can do something to the process or to its parents meanwhile. Without
the variable a failpoint costs one dictionary look-up.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections import Counter
from pathlib import Path

VARIABLE = "ANABRANCH_FAILPOINT"
PAUSE_SECONDS = 60
_passed: Counter[str] = Counter()


class FailpointError(Exception):
    """Raised at a failpoint that a test armed."""


def failpoint(name: str) -> None:
    """Fail here if a test asked for it."""
    setting = os.environ.get(VARIABLE)
    if setting is None:
        return
    armed, _, action = setting.partition("=")
    if armed != name:
        return
    _passed[name] += 1
    verb, _, when = action.partition("@")
    if when.startswith("once:"):
        try:
            with Path(when.removeprefix("once:")).open("x") as marker:
                marker.write(str(os.getpid()))
        except FileExistsError:
            return
    elif _passed[name] != int(when or 1):
        return
    if verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if verb == "pause":
        time.sleep(PAUSE_SECONDS)
        return
    if verb == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    raise FailpointError(f"failpoint {name}")
