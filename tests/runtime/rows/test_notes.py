"""Rows that cannot be processed or come too late: named, counted, put aside; never silently gone."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import BadRowError
from tests.oracle.feed import Feed, on_time, run_to_end, written
from tests.oracle.referee import Stream, assert_same_rows, join
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.string()), ("at", pa.int64()), ("v", pa.binary())])
QUERY = "SELECT A.k, A.at, B.at AS bt FROM A [RANGE 1 SECOND], B [RANGE 1 SECOND] WHERE A.k = B.k"
FAR = 2**63 - 1


def lines(directory: Path) -> list[dict]:
    return [json.loads(line) for path in sorted(directory.glob("*.jsonl")) for line in path.read_text().splitlines()]


def test_a_bad_row_stops_the_run_until_there_is_a_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    a, b = Feed(tmp_path / "A", SCHEMA), Feed(tmp_path / "B", SCHEMA)
    a.add(k=["x", "y"], at=[1000, 1500], v=[b"1", b"2"])
    b.add(k=["x", "y"], at=[1000, 2000], v=[None, b""])
    a.add(k=["x", "y", "x", None, "x"], at=[2000, None, FAR, None, 100], v=[b"3", b"\xff\x00", b"5", b"6", b"7"])
    b.add(k=["x", "x"], at=[-FAR, 3000], v=[b"8", b"9"])

    def query(**settings: object) -> ab.Query:
        engine = ab.Engine(spark, tmp_path / "checkpoint", **{"processors": 1, **settings})
        engine.register("A", a.stream(spark), time="at", lateness="1 second")
        engine.register("B", b.stream(spark), time="at", lateness="1 second")
        return engine.sql(QUERY)

    with pytest.raises(BadRowError) as caught:
        run_to_end(query(), tmp_path / "out")
    assert "column at:" in str(caught.value)
    assert any(sample in str(caught.value) for sample in ("stream A", "stream B"))
    assert "row(s) cannot be processed because its event time is" in str(caught.value)
    assert any(f"k={key}, at=" in str(caught.value) for key in "xy")
    assert "quarantine=PATH" in str(caught.value)
    assert len(written(tmp_path / "out")) == 2  # the first batch, and nothing of the second

    aside, late = tmp_path / "aside", tmp_path / "late"
    run = run_to_end(query(quarantine=aside, late_rows=late), tmp_path / "out")
    assert sorted((line["stream"], line["column"], line["problem"], line["row"]) for line in lines(aside)) == [
        ("A", "at", "its event time is null", "k=y, at=null, v=FF00"),
        ("A", "at", "its event time is out of range", f"k=x, at={FAR}, v=35"),
        ("B", "at", "its event time is out of range", f"k=x, at={-FAR}, v=38"),
    ]
    assert [(line["input"], line["ts"], line["row"]["k"]) for line in lines(late)] == [("A", 100_000, "x")]

    good = {
        name: [
            batch.filter(pa.array([t is not None and abs(t) < FAR for t in batch.column("at").to_pylist()]))
            for batch in feed.batches
        ]
        for name, feed in (("A", a), ("B", b))
    }
    streams = {name: Stream(on_time(batches, "at", 1000)[0], ["k"], "at", 1000) for name, batches in good.items()}
    assert_same_rows(written(tmp_path / "out"), join(streams, ["A.k", "A.at", "B.at"]))
    ours = run.recentProgress[-1]["anabranch"]
    assert ours["receivedRows"] == {"A": 4, "B": 2}  # a row with a null key can join nothing and is not received
    assert ours["quarantinedRows"] == {"A": 2, "B": 1}
    assert ours["lateRows"] == {"A": 1, "B": 0}
    assert ours["totals"] == {
        "combinations": len(written(tmp_path / "out")),
        "results": {"query": len(written(tmp_path / "out"))},
        "received": {"A": 6, "B": 4},
        "late": {"A": 1, "B": 0},
        "late_joined": 0,
        "rejected": {"A": 2, "B": 1},
    }


def test_rows_put_aside_are_not_doubled_by_a_crash_and_fewer_processors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {name: Kind(SCHEMA, "at", 0) for name in "AB"}
    settings = {"quarantine": tmp_path / "aside", "late_rows": tmp_path / "late"}
    keys = [str(number) for number in range(12)]
    start = pa.table({"k": ["0"], "at": [1000], "v": [b""]}, schema=SCHEMA)
    bad = pa.table({"k": keys, "at": [None] * 12, "v": [b""] * 12}, schema=SCHEMA)
    late = pa.table({"k": keys, "at": [1] * 12, "v": [b""] * 12}, schema=SCHEMA)

    def steps(processors: int) -> Steps:
        return Steps(spark, tmp_path / "checkpoint", QUERY, kinds, processors=processors, settings=settings)

    with steps(3) as crashing:
        crashing.feed({"A": start})
        monkeypatch.setenv("ANABRANCH_FAILPOINT", "step.before_commit=raise@once:" + str(tmp_path / "crashed"))
        with pytest.raises(Exception, match="failpoint step.before_commit"):
            crashing.feed({"A": pa.concat_tables([bad, late])})
        assert len(list((tmp_path / "aside").iterdir())) == 3
    with steps(1) as resumed:
        resumed.feed({"A": pa.concat_tables([bad, late])})
    assert len(lines(tmp_path / "aside")) == 12
    assert sorted(line["row"]["k"] for line in lines(tmp_path / "late")) == sorted(keys)


@pytest.mark.parametrize("key", [("A.n = B.n", "n"), ("A.n + 1 = B.n", "`n` + 1"), ("A.n = B.n AND A.k = B.k", "n")])
def test_late_rows_show_their_key_and_can_be_asked_for_at_any_time(
    spark: SparkSession, tmp_path: Path, key: tuple[str, str]
) -> None:
    """Also where the key is neither stored nor selected."""
    kind = Kind(pa.schema([("n", pa.int64()), ("k", pa.string()), ("at", pa.int64())]), "at", 0)
    text = f"SELECT A.at, B.at AS bt FROM A [RANGE 1 SECOND], B [RANGE 1 SECOND] WHERE {key[0]}"

    def rows(at: int) -> dict[str, pa.Table]:
        return {name: pa.table({"n": [7 + (name == "B" and "+" in text)], "k": ["x"], "at": [at]}) for name in "AB"}

    for number, late in enumerate((None, tmp_path / "late", None)):
        with Steps(spark, tmp_path / "checkpoint", text, {"A": kind, "B": kind}, settings={"late_rows": late}) as steps:
            steps.feed(rows(9_000 + number))
            steps.feed(rows(1_000))
    assert len(steps.answer) == 5  # the last batch on time, with the state of all runs
    shown = [line["row"] for line in lines(tmp_path / "late") if line["input"] == "A"]
    assert [row["at"] for row in shown] == [1_000]
    assert key[1] in shown[0]


def test_nothing_is_bad_or_late_where_no_window_asks_for_time(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {name: Kind(SCHEMA, "at", 0) for name in "AB"}
    rows = pa.table({"k": ["x", "x"], "at": [None, FAR], "v": [b"", b""]}, schema=SCHEMA)
    with Steps(spark, tmp_path / "checkpoint", "SELECT A.at FROM A, B WHERE A.k = B.k", kinds) as steps:
        steps.feed({"A": rows})
        steps.feed({"B": rows})
        assert len(steps.answer) == 4


# Values that Python or JSON have no form for, with what stands for them in the row and in the note.
HOSTILE = {
    "text": ("CAST(X'41FF' AS STRING)", "A\ufffd", "text=A\ufffd"),
    "inside": ("array(named_struct('name', CAST(X'FF' AS STRING)))", [{"name": "\ufffd"}], "inside=[{\ufffd}]"),
    "nan": ("double('NaN')", "NaN", "nan=NaN"),
    "infinite": ("float('-Infinity')", "-Infinity", "infinite=-Infinity"),
    "raw": ("X'00FF'", "AP8=", "raw=00FF"),
    "first": ("DATE'0000-01-01'", "0000-01-01", "first=0000-01-01"),
    "far": ("DATE'+99999-12-31'", "+99999-12-31", "far=+99999-12-31"),
    "moment": ("timestamp_micros(9223372036854775807)", "+294247-01-10T04:00:54.775807Z", "moment=+294247-01-10"),
    "local": ("CAST(timestamp_micros(-9223372036854775808) AS TIMESTAMP_NTZ)", "-290308-12-21", "local=-290308-12-21"),
    "exact": ("CAST(0 AS DECIMAL(38, 18))", "0.000000000000000000", "exact=0.000000000000000000"),
    "months": ("INTERVAL '1-2' YEAR TO MONTH", 14, "months=INTERVAL '1-2' YEAR TO MONTH"),
    "span": ("INTERVAL '106751991 04:00:54.775807' DAY TO SECOND", 2**63 - 1, "span=INTERVAL '106751991 04"),
    "pairs": (
        "map(CAST(X'FE' AS STRING), double('NaN'))",
        [{"key": "\ufffd", "value": "NaN"}],
        "pairs={\ufffd -> NaN}",
    ),
    "shape": ("st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')", {"srid": 0}, "shape=0101000000"),
}


def test_values_that_json_has_no_form_for_are_put_aside_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    """Late and bad rows with text that is not UTF-8, years that Python does not know, NaN and binary."""
    select = ("k", "at", *(f"{expression} AS {name}" for name, (expression, _, _) in HOSTILE.items()))
    schema = pa.schema([("k", pa.string()), ("at", pa.int64())])
    kinds = {"A": Kind(schema, "at", 0, select), "B": Kind(schema, "at", 0)}
    columns = ", ".join(f"A.{name}" for name in HOSTILE)
    text = f"SELECT {columns}, B.at FROM A [RANGE 1 SECOND], B [RANGE 1 SECOND] WHERE A.k = B.k"

    def rows(*times: int | None) -> dict[str, pa.Table]:
        return {"A": pa.table({"k": ["x"] * len(times), "at": list(times)}, schema=schema)}

    settings = {"quarantine": tmp_path / "aside", "late_rows": tmp_path / "late"}
    with Steps(spark, tmp_path / "checkpoint", text, kinds, settings=settings, sink=lambda *_: None) as steps:
        steps.feed(rows(9_000))
        steps.feed(rows(1_000, None))
    (late,) = lines(tmp_path / "late")
    for name, (_, value, _) in HOSTILE.items():
        if isinstance(value, dict):
            assert value.items() <= late["row"][name].items(), name
        else:
            found = late["row"][name]
            assert found == value or (name == "local" and found.startswith(value)), name
    assert late["invalid_utf8"] == {"inside[].name": ["ff"], "pairs[].key": ["fe"], "text": ["41ff"]}
    (bad,) = lines(tmp_path / "aside")
    for _, _, shown in HOSTILE.values():
        assert shown in bad["row"]

    with Steps(spark, tmp_path / "another", text, kinds, sink=lambda *_: None) as steps:
        with pytest.raises(Exception, match="BadRowError"):
            steps.feed(rows(None))
        assert isinstance(steps.runner.failure, BadRowError)
        assert "its event time is null; for example k=x, at=null, text=A\ufffd" in str(steps.runner.failure)
