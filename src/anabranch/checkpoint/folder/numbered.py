"""Folders of a checkpoint whose files are named by numbers, such as `plans/000002.json`."""

from __future__ import annotations

from pathlib import Path


def numbers(folder: Path) -> list[int]:
    """The numbers that name the documents of a folder, ascending; a copy made by hand (`1 (old).json`) is left out."""
    return sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal())
