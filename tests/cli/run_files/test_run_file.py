"""Run files: what is read from them, and how wrong ones are refused. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli.demos.question import RUN_FILE
from anabranch.cli.main import app
from anabranch.cli.run_files.run_file import load
from anabranch.errors import ConfigError

EXAMPLE = Path(__file__).parents[3] / "examples" / "orders.toml"

SMALL = """
query = "SELECT a.v, b.w FROM a, b WHERE a.k = b.k"
checkpoint = "state"

[streams.a]
format = "json"
path = "in/a"
schema = "k BIGINT, v STRING"

[streams.b]
format = "kafka"
options = { subscribe = "b", "kafka.bootstrap.servers" = "localhost:9092", failOnDataLoss = false, minPartitions = 3 }

[sink]
path = "file:/elsewhere/out"
"""


def written(folder: Path, text: str, name: str = "q.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_small_file_gets_the_defaults(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, SMALL))

    assert (loaded.groups, loaded.processors, loaded.memory) == (256, None, None)
    assert loaded.processing_time is None
    assert loaded.sink.format == "parquet"
    assert loaded.spark == {}


def test_relative_paths_are_seen_from_the_files_folder_and_uris_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, SMALL)
    monkeypatch.chdir(tmp_path.parent)

    loaded = load(Path(tmp_path.name) / path.name)

    assert loaded.checkpoint == str(tmp_path / "state")
    assert loaded.streams[0].path == str(tmp_path / "in/a")
    assert loaded.streams[1].path is None
    assert loaded.sink.path == "file:/elsewhere/out"


def test_options_become_the_texts_that_spark_takes(tmp_path: Path) -> None:
    assert load(written(tmp_path, SMALL)).streams[1].options == {
        "subscribe": "b",
        "kafka.bootstrap.servers": "localhost:9092",
        "failOnDataLoss": "false",
        "minPartitions": "3",
    }


def test_everything_that_can_be_said_is_read(tmp_path: Path) -> None:
    top = 'processors = 3\ngroups = 64\nmemory = "200m"\nquarantine = "bad"\nlate_rows = "/late"\n'
    tail = '[trigger]\nprocessing_time = "5 seconds"\n[spark]\nspark.driver.memory = "4g"\n"spark.ui.port" = 1\n'

    loaded = load(written(tmp_path, top + SMALL + 'partition_by = ["w"]\n' + tail))

    assert (loaded.processors, loaded.groups, loaded.memory) == (3, 64, "200m")
    assert (loaded.quarantine, loaded.late_rows) == (str(tmp_path / "bad"), "/late")
    assert loaded.processing_time == "5 seconds"
    assert loaded.sink.partition_by == ("w",)
    assert loaded.spark == {"spark.driver.memory": "4g", "spark.ui.port": "1"}


def test_policies_are_tables_with_their_arguments(tmp_path: Path) -> None:
    policies = (
        "[policies.lazy-disk]\nspan = '3 seconds'\n[policies.lazy-disk.spill]\npush = 0.5\n[policies.flux-load]\n"
    )
    loaded = load(written(tmp_path, "initial_placement = [4, 1]\n" + SMALL + policies))
    assert loaded.policies == (ab.LazyDisk(span="3 seconds", spill=ab.Spill(push=0.5)), ab.FluxLoad())
    assert loaded.initial_placement == (4, 1)
    assert load(written(tmp_path, SMALL)).policies is None


def test_a_file_can_leave_all_policies_to_the_run_itself(tmp_path: Path) -> None:
    assert load(written(tmp_path, "policies = 'adaptive'\n" + SMALL)).policies == (ab.Adaptive(),)
    only_told = SMALL + "[policies.adaptive]\ndry_run = true\n"
    assert load(written(tmp_path, only_told)).policies == (ab.Adaptive(dry_run=True),)


def test_yaml_says_the_same_as_toml(tmp_path: Path) -> None:
    text = """
query: SELECT a.v, b.w FROM a, b WHERE a.k = b.k
checkpoint: state
streams:
  a: {format: json, path: in/a, schema: "k BIGINT, v STRING"}
  b:
    format: kafka
    options: {subscribe: b, kafka.bootstrap.servers: "localhost:9092", failOnDataLoss: false, minPartitions: 3}
sink: {path: "file:/elsewhere/out"}
"""
    from_yaml = load(written(tmp_path, text, "q.yaml"))
    from_toml = load(written(tmp_path, SMALL))

    assert (from_yaml.streams, from_yaml.sink) == (from_toml.streams, from_toml.sink)
    assert (from_yaml.query, from_yaml.checkpoint) == (from_toml.query, from_toml.checkpoint)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("checkpoint =", "chekpoint =", "chekpoint is not a key that exists here; did you mean 'checkpoint'?"),
        ("checkpoint =", "# checkpoint =", "checkpoint is missing: the folder that holds the state"),
        ("query =", "# query =", "query is missing: the CQL text"),
        ("path = 'in/a'", "pth = 'in/a'", "streams.a.pth is not a key that exists here; did you mean 'path'?"),
        ("format = 'json'", "format = 3", "streams.a.format must be a text in quotes, not the number 3"),
        ("format = 'json'", "", "streams.a.format is missing: how Spark reads the stream"),
        ("format = 'json'", "format = 'json'\nlateness = '1 second'", "streams.a.lateness needs a time column"),
        (
            "format = 'json'",
            "format = 'json'\ntime = 't'\nlateness = '1 secnd'",
            "streams.a.lateness is wrong: unknown unit of time 'secnd' in '1 secnd'; did you mean 'seconds'?",
        ),
        ("subscribe = 'b'", "path = 'b'", "streams.b.options.path has a key of its own: write it as path beside"),
        ("subscribe = 'b'", "subscribe = ['b']", "streams.b.options.subscribe must be a text, a number, true or"),
        ("[sink]", "[skin]", "skin is not a key that exists here; did you mean 'sink'?"),
        ("[sink]", "[sink]\nformat = 'memory'", "sink.format 'memory' would be gone"),
        ("path = 'file:/elsewhere/out'", "", "sink.path is missing: the folder that the files go to"),
        ("path = 'file:/elsewhere/out'", "format = 'csv'", "sink.path is missing: the folder that the files go to"),
        ("[sink]", "[trigger]\navailable_now = false\n[sink]", "trigger.available_now is false, so it needs a pace"),
        (
            "[sink]",
            "[trigger]\navailable_now = true\nprocessing_time = '1 second'\n[sink]",
            "trigger.available_now and processing_time exclude each other",
        ),
        ("[sink]", "[spark]\ndriver.memory = '4g'\n[sink]", "they begin with 'spark.', as in 'spark.driver.memory'"),
        ("query =", "groups = 100\nquery =", "groups is wrong: groups must be a power of two"),
        ("query =", "groups = 0\nquery =", "groups is wrong: groups must be a power of two"),
        ("query =", "processors = 0\nquery =", "processors is wrong: processors must be 1 or more, not 0"),
        ("query =", "processors = true\nquery =", "processors must be a whole number, not true"),
        ("query =", "groups = 4\nprocessors = 8\nquery =", "8 processors need at least as many partition groups"),
        ("query =", "memory = '200 apples'\nquery =", "memory is wrong: '200 apples' is not a size"),
        ("checkpoint = 'state'", "checkpoint = 's3://b/c'", "checkpoint is wrong: s3://b/c: s3: storage is not"),
        ("[streams.a]", "[streams.a", "q.toml is not valid TOML"),
        ("[sink]", "[policies.lazy-dsik]\n[sink]", "policies.lazy-dsik is not a key that exists here; did you mean"),
        (
            "[sink]",
            "[policies.spill]\npsh = 1\n[sink]",
            "policies.spill.psh is not a key that exists here; did you mean",
        ),
        ("query =", "policies = 'adaptve'\nquery =", "policies must be 'adaptive' or tables such as [policies.spill]"),
        ("[sink]", "[policies.spill]\npush = 7\n[sink]", "policies.spill is wrong: push is the share"),
        ("query =", "initial_placement = 'a'\nquery =", "initial_placement must be a list of numbers"),
        ("format = 'json'", "format = 'anabranch-synthetic'", "streams.a.path is of no use: anabranch-synthetic makes"),
        (
            "format = 'kafka'",
            "format = 'anabranch-synthetic'",
            "options is wrong: anabranch-synthetic has no option",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_the_key_and_the_remedy(
    tmp_path: Path, before: str, after: str, expected: str
) -> None:
    text = SMALL.replace("'", '"').replace(before.replace("'", '"'), after)
    assert text != SMALL

    with pytest.raises(ConfigError) as refused:
        load(written(tmp_path, text))

    assert expected in str(refused.value)
    assert str(refused.value).startswith("q.toml")


@pytest.mark.parametrize("options", ["{}", "{ rows = 10 }", "{ rows = 10, paced = true }", "{ paced = false }"])
def test_synthetic_rows_that_are_yet_to_come_are_refused_where_the_run_would_end_before(
    tmp_path: Path, options: str
) -> None:
    stream = f'format = "anabranch-synthetic"\noptions = {options}\n'
    text = f'query = "q"\ncheckpoint = "c"\n[sink]\npath = "o"\n[streams.a]\n{stream}'

    with pytest.raises(ConfigError, match=r"streams.a.options must say how many rows .* trigger.processing_time"):
        load(written(tmp_path, text))
    assert load(written(tmp_path, text + '[trigger]\nprocessing_time = "1 second"')).processing_time == "1 second"


def test_no_streams_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="streams is missing: a table for each stream"):
        load(written(tmp_path, 'query = "x"\ncheckpoint = "c"\n'))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("q.yml", "query: [", "q.yml is not valid YAML"),
        ("q.yml", "- query", "q.yml: must be a table of keys and values, not a list"),
        ("q.yml", "", "q.yml: must be a table of keys and values, not nothing"),
        ("q.txt", SMALL, "its name must end in .toml, .yaml or .yml"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, name: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(written(tmp_path, text, name))

    assert expected in str(refused.value)


@pytest.mark.parametrize("name", ["absent.toml", "."])
def test_the_command_refuses_in_one_line_with_exit_code_two(tmp_path: Path, name: str) -> None:
    shown = CliRunner().invoke(app, ["run", str(tmp_path / name)])

    assert shown.exit_code == 2
    assert shown.stderr.startswith("anabranch: ")
    assert shown.stderr.count("\n") == 1


def test_the_shipped_example_asks_what_the_demo_asks(tmp_path: Path) -> None:
    example, demo = load(EXAMPLE), load(written(tmp_path, RUN_FILE, "orders.toml"))

    assert example.query == demo.query
    assert [(s.name, s.schema, s.time, s.lateness) for s in example.streams] == [
        (s.name, s.schema, s.time, s.lateness) for s in demo.streams
    ]
