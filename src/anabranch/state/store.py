"""How checkpoint files are written and read: the one place that writes, and the reader of documents.

Invariants:

- A file appears under its final name only when it is complete and flushed: everything is written to a name that
  starts with a dot, fsynced, and then renamed or linked.
- A document (JSON) carries the checksum of its own body, so a flipped bit is found when it is read. Runs carry
  theirs in the manifest that names them.
- `create` never overwrites. If the name is taken the caller is told and may compare.
- `append` is the exception to the first: it adds to a file that is there, and a crash may leave part of what it adds.
  It is for what people read and no answer depends on.

Limits: the checkpoint is a directory that the driver and every executor see under the same path (a local disk for
`local[*]`, a shared mount on a cluster). Object stores are refused.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from anabranch.errors import ConfigError, CorruptStateError, DiskFullError
from anabranch.state.failpoints import failpoint

Json = dict[str, Any]

NO_SPACE = "there is no space left to write"
FREE_SOME = "The last committed step is intact: free some space, and start the run again to go on from there"

_OPENING = b'{"checksum":"%08x","body":'
_CLOSING = b"}\n"


def local_path(location: str | os.PathLike[str]) -> Path:
    """The directory that `location` (a path or a `file:` URI) names; other schemes are refused."""
    if not isinstance(location, str | os.PathLike):
        raise ConfigError(f"a directory must be a path, such as 'state', not {location!r}")
    text = os.fspath(location)
    parsed = urlparse(text)
    if parsed.scheme == "file":
        if parsed.netloc not in ("", "localhost"):
            raise ConfigError(f"{text}: a file: location must not name a host")
        text = unquote(parsed.path)
    elif len(parsed.scheme) > 1:
        raise ConfigError(
            f"{text}: {parsed.scheme}: storage is not supported for this; "
            "use a path that the driver and all executors see, such as a local disk or a shared mount"
        )
    return Path(text).absolute()


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write `data` so that `path` either does not exist or is complete, also after a power cut."""
    write_unnamed(path, data)
    sync(path.parent)


def write_unnamed(path: Path, data: bytes | memoryview) -> None:
    """Like `write_file`, but a power cut may take back the name until its directory went through `sync`.

    For a writer of several files that names them elsewhere afterwards: one such call is enough for all.
    """
    os.replace(_write_pending(path, data), path)


def create_file(path: Path, data: bytes) -> bool:
    """Like `write_file`, but leave an existing file alone and return False."""
    pending = _write_pending(path, data)
    try:
        os.link(pending, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(pending)
    sync(path.parent)
    return True


def append(path: Path, data: bytes) -> None:
    """Add `data` to a file, without waiting for the disk: a power cut may take it back, or leave part of it."""
    with open(path, "ab", buffering=0) as file:
        file.write(data)


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder, with those above it, so that a power cut takes none of the new names back."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync(folder.parent)


def encode_document(body: Json) -> bytes:
    """A JSON document with the checksum of its body's very bytes."""
    text = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    return _OPENING % zlib.crc32(text) + text + _CLOSING


def read_document(path: Path) -> Json:
    """The body of a document written by `encode_document`; damage and absence are named."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CorruptStateError(f"{path} is missing, though the checkpoint refers to it; restore it") from None
    body = decode_document(data)
    if body is None:
        raise CorruptStateError(f"{path} is damaged: its checksum does not match its content")
    return body


def decode_document(data: bytes) -> Json | None:
    """The body of what `encode_document` made; None if it is damaged or not all there."""
    text = data[len(_OPENING % 0) : -len(_CLOSING)]
    if data != _OPENING % zlib.crc32(text) + text + _CLOSING:
        return None
    body: Json = json.loads(text)
    return body


def full_disk(error: OSError, where: os.PathLike[str] | str) -> DiskFullError | None:
    """The error to raise if a system error means that a disk is full; None if it does not."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return DiskFullError(f"{NO_SPACE} {os.fspath(where)} ({error.strerror}). {FREE_SOME}")


def _write_pending(path: Path, data: bytes | memoryview) -> Path:
    pending = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}"
    try:
        with open(pending, "wb") as file:
            failpoint("store.write")
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        pending.unlink(missing_ok=True)
        disk_full = full_disk(error, path)
        if disk_full is None:
            raise
        raise disk_full from error
    return pending
