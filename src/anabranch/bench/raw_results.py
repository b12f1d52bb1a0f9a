"""Raw results: the values of a benchmark in a JSON file, with all that is needed to judge and repeat them.

`Origin` says where values come from: the command, its start, the commit of the code and whether its files had been
modified, and the versions of the libraries. It is taken before the first run, since files may change while a benchmark
lasts. `save` writes it together with a result; nothing else writes results. In a folder no file is replaced: the second
one of a day and commit gets a number.

Paths of the machine are left out: they do not matter for the values.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Protocol

import anabranch
from anabranch.bench.machine import Machine
from anabranch.errors import ConfigError

LIBRARIES = ("anabranch", "pyspark", "pyarrow", "numpy")
# Options on the folder of a benchmark and on its output, with whether they take a value.
WITHOUT_EFFECT = {"--work": True, "--save": True, "--out": True, "--json": False, "--debug": False}


class Result(Protocol):
    """The result of a benchmark: the machine it ran on, whether its claims hold, and its values for JSON."""

    @property
    def machine(self) -> Machine:
        """The machine, as it was before the first run."""
        ...

    @property
    def hold(self) -> bool:
        """Whether all claims hold."""
        ...

    def document(self) -> dict[str, object]:
        """All values, down to those of each run."""
        ...


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of the project; `modified` if the package's files were not those of the commit."""

    hash: str
    modified: bool


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of values; `commit` is None if the package is not part of a clone of the project."""

    bench: str
    command: str
    started: str
    commit: Commit | None
    versions: Mapping[str, str]


def as_json(result: Result) -> str:
    """The document of a result as text."""
    return json.dumps(result.document(), indent=2, default=str)


def origin_of(bench: str, arguments: Sequence[str]) -> Origin:
    """The origin of the values of a benchmark that is called with these arguments of the command line."""
    return Origin(
        bench=bench,
        command=shlex.join(["anabranch", *with_effect(arguments)]),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit_of(Path(anabranch.__file__).parent),
        versions=_versions(),
    )


def with_effect(arguments: Sequence[str]) -> list[str]:
    """The arguments without those that have no effect on the values."""
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        option, _, value = argument.partition("=")
        if option not in WITHOUT_EFFECT:
            kept.append(argument)
        elif WITHOUT_EFFECT[option] and not value:
            next(rest, None)
    return kept


def commit_of(folder: Path) -> Commit | None:
    """The commit that a folder of sources belongs to; None if it is not tracked, as an installed package is not."""

    def git(*arguments: str) -> str:
        ran = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    try:
        if not git("ls-files", "."):
            return None
        return Commit(git("rev-parse", "HEAD"), modified=bool(git("status", "--porcelain", "--", ".")))
    except (OSError, subprocess.CalledProcessError):
        return None


def check_target(target: Path) -> None:
    """Refuse a file or folder that `save` could not write, before anything is measured."""
    if target.suffix == ".json" and target.exists():
        raise ConfigError(f"{target} exists already; name another file, or a folder")
    folder = _folder(target)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror or error}; name a folder that can be written to") from None
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"{folder} cannot be written to; name another folder")


def save(origin: Origin, result: Result, target: Path) -> Path:
    """Write a result with its origin; return the path of the file.

    A target that ends in `.json` is the file. Any other is a folder, in which the file is named after the benchmark,
    the day and the commit.
    """
    _folder(target).mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(origin) | _without_work(result.document()), indent=1, default=str) + "\n"
    if target.suffix == ".json":
        target.write_text(text)
        return target
    for number in count(1):
        path = target / f"{_stem(origin)}{'' if number == 1 else f'-{number}'}.json"
        try:
            with path.open("x") as file:
                file.write(text)
        except FileExistsError:
            continue
        return path
    raise AssertionError("there is always a next number")


def _folder(target: Path) -> Path:
    return target.parent if target.suffix == ".json" else target


def _stem(origin: Origin) -> str:
    """The name of a file, such as `throughput-2026-11-18-4a5f3ff`."""
    commit = "unknown" if origin.commit is None else origin.commit.hash[:7]
    modified = "-modified" if origin.commit is not None and origin.commit.modified else ""
    return f"{origin.bench}-{origin.started[:10]}-{commit}{modified}"


def _without_work(document: dict[str, object]) -> dict[str, object]:
    options = document.get("options")
    if not isinstance(options, dict):
        return document
    return document | {"options": {name: value for name, value in options.items() if name != "work"}}


def _versions() -> dict[str, str]:
    libraries = {name: version(name) for name in LIBRARIES}
    return {
        "python": platform.python_version(),
        "java": _java(),
        "system": f"{platform.system()} {platform.machine()}",
        **libraries,
    }


def _java() -> str:
    """The version of the Java that Spark starts, as its own `release` file has it."""
    home = os.environ.get("JAVA_HOME")
    program = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    try:
        lines = (program.resolve().parent.parent / "release").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.partition("=")[2].strip('"') for line in lines if line.startswith("JAVA_VERSION=")), "unknown")
