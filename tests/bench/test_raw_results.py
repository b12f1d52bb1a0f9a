"""Raw results as files: what is in them, how they are called, and that none replaces another."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from anabranch.bench.contenders.child import Measurement
from anabranch.bench.contenders.job import Batch, Outcome
from anabranch.bench.contenders.memory import MemoryPeak
from anabranch.bench.machine import Machine
from anabranch.bench.raw_results import Commit, Origin, check_target, commit_of, origin_of, save, with_effect
from anabranch.bench.throughput import ThroughputOptions, ThroughputResult, ratios, summarise
from anabranch.errors import ConfigError

HASH = "4a5f3ff0123456789012345678901234567890ab"
MACHINE = Machine("2026-11-18", cores=2, memory=24 << 30, load=0.1, python="3.11.7", pyspark="4.3.0")


def origin(modified: bool = False, bench: str = "throughput") -> Origin:
    return Origin(bench, f"anabranch bench {bench}", "2026-11-18T09:00:00+00:00", Commit(HASH, modified), {})


def result() -> ThroughputResult:
    runs = [
        Measurement(Outcome(seconds, (Batch(300, 800), Batch(300, 700)), 7), MemoryPeak(3, 2, 1))
        for seconds in (2.0, 3.0, 2.5)
    ]
    contenders = (summarise("anabranch", runs),)
    return ThroughputResult(
        ThroughputOptions(work=Path("/somewhere/here")), MACHINE, 600, 2, contenders, ratios(contenders)
    )


def test_a_file_has_its_origin_the_machine_and_the_values_of_every_run(tmp_path: Path) -> None:
    document = json.loads(save(origin(), result(), tmp_path / "results").read_text())

    assert document["command"] == "anabranch bench throughput"
    assert document["commit"] == {"hash": HASH, "modified": False}
    assert document["machine"]["cores"] == 2
    assert document["options"]["rows_per_batch"] == 300_000
    outcomes = [run["outcome"] for run in document["contenders"][0]["runs"]]
    assert [outcome["seconds"] for outcome in outcomes] == [2.0, 3.0, 2.5]
    assert [batch["milliseconds"] for batch in outcomes[1]["batches"]] == [800, 700]


def test_a_file_is_called_after_benchmark_day_and_commit_and_replaces_none(tmp_path: Path) -> None:
    names = [save(origin(modified), result(), tmp_path).name for modified in (False, False, True)]

    assert names == [
        "throughput-2026-11-18-4a5f3ff.json",
        "throughput-2026-11-18-4a5f3ff-2.json",
        "throughput-2026-11-18-4a5f3ff-modified.json",
    ]


def test_a_file_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "new" / "mine.json"

    check_target(path)
    assert save(origin(), result(), path) == path
    with pytest.raises(ConfigError, match="exists already"):
        check_target(path)


def test_no_path_of_the_machine_gets_into_a_file(tmp_path: Path) -> None:
    assert "/somewhere" not in save(origin(), result(), tmp_path).read_text()


def test_a_command_is_told_without_what_does_not_change_what_it_measures() -> None:
    typed = ["bench", "chain", "--work", "/w", "--repeats", "3", "--save=/s", "--json", "--seed=4", "--out", "/o"]

    assert with_effect(typed) == ["bench", "chain", "--repeats", "3", "--seed=4"]
    assert origin_of("chain", typed).command == "anabranch bench chain --repeats 3 --seed=4"


def test_versions_of_all_that_takes_part_are_on_record() -> None:
    assert {"python", "java", "anabranch", "pyspark", "pyarrow", "numpy"} <= set(origin_of("flat", []).versions)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="name a folder that can be written to"):
        check_target(tmp_path / "file" / "results")


def test_a_commit_is_modified_if_the_files_of_the_package_are(tmp_path: Path) -> None:
    package = tmp_path / "src"
    package.mkdir()
    (package / "module.py").touch()

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        ran = subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True, text=True)
        return ran.stdout.strip()

    git("init")
    assert commit_of(package) is None, "nothing of it is tracked, as of an installed package"
    git("add", ".")
    git("commit", "-m", "first")
    head = git("rev-parse", "HEAD")
    (tmp_path / "result.json").touch()
    assert commit_of(package) == Commit(head, modified=False), "files beside the package do not count"
    (package / "new.py").touch()
    assert commit_of(package) == Commit(head, modified=True)


def test_outside_of_a_clone_there_is_no_commit(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
