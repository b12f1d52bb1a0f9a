"""The soak program itself, with rounds that are made up: what it draws, tells and returns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import __main__ as soak
from tests.soak.rounds import ROOT, draw_round, properties


def test_a_failure_is_told_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def do(seed: int) -> str:
        assert seed != 13, "unlucky"
        return "a test"

    monkeypatch.setattr(soak, "do_property", do)
    monkeypatch.setattr(soak, "seeds", lambda first, minutes: iter([12, 13, 14]))
    assert soak.main(["--kind", "property"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if "property" in line[:30]] == [
        ["ok", "12"],
        ["FAILED", "13"],
        ["ok", "14"],
    ]
    assert 'repeat it: make soak ARGS="--seed 13 --kind property"' in lines
    assert lines[-2].endswith("rounds that went well: 2 property; failures: 1")
    assert soak.main(["--kind", "property", "--seed", "12"]) == 0
    assert soak.main(["--kind", "property", "--seed", "13"]) == 1


def test_an_interrupted_soak_ends_with_its_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(seed: int) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(soak, "do_property", interrupt)
    monkeypatch.setattr("signal.signal", lambda *arguments: None)
    assert soak.main(["--kind", "property", "--minutes", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "interrupted",
        "0.0 minutes; rounds that went well: none; failures: 0",
    ]


def test_the_same_seed_draws_the_same_round() -> None:
    first, second = draw_round(5), draw_round(5)
    assert str(first) == str(second)
    assert first.plan.text == second.plan.text
    first_rows, second_rows = (
        [str(rows.to_pylist()) for batch in drawn.plan.batches for rows in batch.values()] for drawn in (first, second)
    )
    assert first_rows == second_rows
    assert len({draw_round(seed).plan.text for seed in range(10)}) == 10


def test_every_property_without_spark_is_found() -> None:
    found = {Path(test.split("::")[0]) for test in properties()}
    assert len(properties()) > 60
    assert {Path("tests/kernel/join/test_delta_rule.py"), Path("tests/state/runs/test_spine.py")} <= found
    assert all((ROOT / path).exists() for path in found)
