"""The rules for documents: what they name exists, and their links lead somewhere."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("house_rules", ROOT / "scripts" / "house_rules.py")
assert _spec is not None
assert _spec.loader is not None
house_rules = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(house_rules)

DOCUMENT = ROOT / "docs" / "usage.md"


@pytest.mark.parametrize(
    "name",
    [
        "src/anabranch/errors.py",
        "state/store.py",
        "state/store",
        "runtime/spark/",
        "docs/usage.md",
        "errors.py",
        "anabranch.errors",
        "anabranch.errors.ConfigError",
        "docs/decisions/NNN-title.md",
        "state/EPOCH-STEP.arrow",
        "anabranch.json",
        "in/a",
        "read/write",
    ],
)
def test_a_document_may_name_what_exists_what_stands_for_others_and_what_is_the_users(name: str) -> None:
    assert list(house_rules.unknown_names(DOCUMENT, f"See `{name}`.")) == []


@pytest.mark.parametrize(
    "name",
    [
        "src/anabranch/nowhere.py",
        "state/nowhere",
        "runtime/gone/step.py",
        "docs/nowhere.md",
        "tests/nowhere/",
        "nowhere.py",
        "anabranch.nowhere",
        "anabranch.errors.NowhereError",
    ],
)
def test_a_document_that_names_what_does_not_exist_is_told_the_line(name: str) -> None:
    (found,) = house_rules.unknown_names(DOCUMENT, f"First.\n\n```\n`docs/in-code`\n```\nSee `{name}`.")
    assert found.startswith(f"6: names {name}, which does not exist")


def test_links_lead_to_files_and_headings() -> None:
    good = "[a](semantics.md) [b](semantics.md#the-answer) [c](#engine) [d](https://example.org/x) [e](../README.md)"
    bad = "[a](gone.md)\n[b](semantics.md#gone)\n[c](#gone)"

    assert list(house_rules.broken_links(DOCUMENT, good)) == []
    assert [found.partition(":")[0] for found in house_rules.broken_links(DOCUMENT, bad)] == ["1", "2", "3"]
