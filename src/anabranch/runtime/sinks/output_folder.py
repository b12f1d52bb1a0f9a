"""An output folder: the files in it that readers see, and how files get there.

Readers such as Spark and Arrow skip names that begin with a dot or an underscore; others, such as DuckDB, read whatever
matches `**/*.parquet`, also in hidden folders. So a file that is not yet published either has a name that ends in
`UNPUBLISHED` or lies elsewhere. An output folder, and each of its sub-folders, may be a link to another file system.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from anabranch.errors import ConfigError
from anabranch.processor.outlets import UNPUBLISHED
from anabranch.state.store import sync


def check_folder(path: Path, whose: str) -> None:
    """Refuse a path where no folder is and none can be made; else a run would fail when it has something to write."""
    existing = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    if existing.is_symlink() and not existing.exists():
        target = os.readlink(existing)
        raise ConfigError(f"{whose} needs a folder, but {existing} is a link to {target}, which is not there; make it")
    if not existing.is_dir():
        raise ConfigError(f"{whose} needs a folder, but {existing} is a file; name another path")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"{whose} cannot write to {existing}: no permission; name another path, or allow it")


def visible_files(folder: Path) -> Iterator[Path]:
    """The files below a folder that readers see, also behind links; not those in hidden folders, as `_temporary`."""
    for path in _below(folder):
        if not _is_hidden(path.name):
            yield path


def remove_batch(folder: Path, prefix: str) -> None:
    """Remove the files of a batch from an output folder, with those that were on their way there."""
    for path in _below(folder):
        if path.name.startswith((prefix, f".{prefix}")):
            path.unlink()


def move_file(source: Path, target: Path) -> None:
    """Give a file its published name. Readers see all of it or nothing, also if it comes from another file system."""
    sync(source)
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        pending = target.parent / f".{target.name}{UNPUBLISHED}"
        shutil.copyfile(source, pending)
        sync(pending)
        os.replace(pending, target)
        source.unlink()


def _below(folder: Path) -> Iterator[Path]:
    """All files below a folder, except in hidden folders; a folder that several links lead to counts once."""
    visited = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        status = os.stat(place)
        if (status.st_dev, status.st_ino) in visited:
            folders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        folders[:] = [name for name in folders if not _is_hidden(name)]
        yield from (Path(place, name) for name in names)


def _is_hidden(name: str) -> bool:
    """Whether a name is not that of a result; a folder of `partitionBy` is, whatever its column is called."""
    return name.startswith((".", "_")) and "=" not in name
