"""Spark's logs under a new plan: the same place in every stream, whatever Spark's query now consists of.

Spark's query reads each stream once per use, and its offset log has a line for each of these sources, in the order in
which they occur. When queries are added or removed there are more uses, or fewer. A batch of the new log gives every
use of a stream the offsets that the stream had; a stream that was not read yet starts at its own beginning.

Only what Spark reads when it starts is carried over: the last two batches of the offset log, the last of the commit
log, and what sources have written for themselves.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from anabranch.errors import CheckpointError
from anabranch.state.store import sync, write_file

# A stream: its name, how many sources of Spark's it consists of, and how often it occurs.
Read = Sequence[str | int]

VERSION = "v1"
NO_OFFSET = "-"


def copy_logs(before: Path, after: Path, known: Sequence[Read], now: Sequence[Read]) -> None:
    """Make the logs of a query that reads streams as in `now`, out of those of one that read them as `known`."""
    for leftover in after.parent.glob("*.new"):
        shutil.rmtree(leftover)
    making = after.with_name(f"{after.name}.new")
    making.mkdir(parents=True)
    if (before / "metadata").exists():
        os.link(before / "metadata", making / "metadata")
    if (before / "sources").exists():
        shutil.copytree(before / "sources", making / "sources", copy_function=os.link)
    for folder, kept in (("offsets", 2), ("commits", 1)):
        (making / folder).mkdir()
        for path in _batches(before / folder)[-kept:]:
            text = path.read_text()
            write_file(making / folder / path.name, (_relisted(text, known, now) if kept == 2 else text).encode())
    for made in (making, *(path for path in making.rglob("*") if path.is_dir())):
        sync(made)
    os.replace(making, after)
    sync(after.parent)


def _batches(folder: Path) -> list[Path]:
    found = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.exists() else []
    return sorted(found, key=lambda path: int(path.name))


def _relisted(text: str, known: Sequence[Read], now: Sequence[Read]) -> str:
    version, metadata, *lines = text.split("\n")
    expected = sum(int(sources) * int(uses) for _, sources, uses in known)
    if version != VERSION or len(lines) != expected:
        raise CheckpointError(
            f"Spark's offset log has {len(lines)} lines in format {version!r}, not {expected} in format {VERSION!r}, "
            "so queries cannot be added or removed here; unset spark.sql.streaming.offsetLog.formatVersion"
        )
    offsets: dict[str, list[str]] = {}
    for name, sources, uses in known:
        offsets[str(name)], lines = lines[: int(sources)], lines[int(sources) * int(uses) :]
    nothing = {str(name): [NO_OFFSET] * int(sources) for name, sources, _ in now}
    listed = [line for name, _, uses in now for line in (offsets.get(str(name)) or nothing[str(name)]) * int(uses)]
    return "\n".join([version, metadata, *listed])
