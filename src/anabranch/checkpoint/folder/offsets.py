"""Spark's logs under a new plan: the same offsets in every stream, whichever sources Spark's new query has.

Spark's query reads each stream once per use, and its offset log has a line for each of these sources, in the order in
which they occur. When queries are added or removed there are more uses, or fewer. A batch of the new log gives every
use of a stream the offsets that the stream had; a stream that was not read yet starts at its own beginning.

Only the files that Spark reads when it starts are carried over: the last two batches of the offset log, the last of the
commit log, and the files that sources have written for themselves.
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


def copy_logs(before: Path, after: Path, read_before: Sequence[Read], read_after: Sequence[Read]) -> None:
    """Make the logs of Spark's query after a change of plan from those of the one before it.

    `read_before` and `read_after` are the streams that the two read.
    """
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
            relisted = _relisted(text, read_before, read_after) if folder == "offsets" else text
            write_file(making / folder / path.name, relisted.encode())
    for directory in (making, *(path for path in making.rglob("*") if path.is_dir())):
        sync(directory)
    os.replace(making, after)
    sync(after.parent)


def _batches(folder: Path) -> list[Path]:
    paths = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.exists() else []
    return sorted(paths, key=lambda path: int(path.name))


def _relisted(text: str, read_before: Sequence[Read], read_after: Sequence[Read]) -> str:
    """The offsets of a batch, with a line for each source of the query after the change."""
    version, metadata, *lines = text.split("\n")
    expected = sum(int(sources) * int(uses) for _, sources, uses in read_before)
    if version != VERSION or len(lines) != expected:
        raise CheckpointError(
            f"Spark's offset log has {len(lines)} lines in format {version!r}, not {expected} in format {VERSION!r}, "
            "so queries cannot be added or removed here; unset spark.sql.streaming.offsetLog.formatVersion"
        )
    offsets: dict[str, list[str]] = {}
    for name, sources, uses in read_before:
        offsets[str(name)], lines = lines[: int(sources)], lines[int(sources) * int(uses) :]
    nothing = {str(name): [NO_OFFSET] * int(sources) for name, sources, _ in read_after}
    listed = [
        line for name, _, uses in read_after for line in (offsets.get(str(name)) or nothing[str(name)]) * int(uses)
    ]
    return "\n".join([version, metadata, *listed])
