"""The store: files are there whole or not at all, and damage is found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ConfigError, CorruptStateError
from anabranch.state import store
from anabranch.state.store import create_file, encode_document, local_path, make_folder, read_document, write_file
from tests.oracle.profiles import examples

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)


def test_a_written_file_holds_the_data_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_file(tmp_path / "a", b"one")
    write_file(tmp_path / "a", memoryview(b"two"))
    assert (tmp_path / "a").read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_name_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    write_file(tmp_path / "a", b"old")

    def fail(*_: object) -> None:
        raise OSError("disk on fire")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(OSError, match="on fire"):
            write_file(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert all(name.startswith(".") for name in os.listdir(tmp_path) if name != "a")


def test_data_is_flushed_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("fsync", "replace", "link"):
        real = getattr(os, name)

        def record(*args: object, name: str = name, real: object = real) -> object:
            calls.append(name)
            return real(*args)  # type: ignore[operator]

        monkeypatch.setattr(os, name, record)
    write_file(tmp_path / "a", b"data")
    assert calls == ["fsync", "replace", "fsync"]
    calls.clear()
    assert create_file(tmp_path / "b", b"data")
    assert calls == ["fsync", "link", "fsync"]


def test_creating_a_file_that_exists_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    assert create_file(tmp_path / "a", b"first") is True
    assert create_file(tmp_path / "a", b"second") is False
    assert (tmp_path / "a").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]


@examples(50)
@given(body=st.dictionaries(st.text(st.characters(codec="utf-8")), json_values, max_size=4))
def test_a_document_comes_back_as_it_was(body: dict, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "document.json"
    path.write_bytes(encode_document(body))
    assert read_document(path) == body
    assert json.loads(path.read_bytes())["body"] == body


BODY = {"step": 12, "share": 0.5, "name": "Größe", "none": None, "runs": [["a", 0, 10]], "ok": True}


def test_a_document_with_any_byte_changed_is_refused_or_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    data = encode_document(BODY)
    served, refusals = [], set()
    for position in range(len(data)):
        for flip in (*(1 << bit for bit in range(8)), 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flip
            path.write_bytes(damaged)
            try:
                served.append((position, read_document(path)))
            except CorruptStateError as error:
                refusals.add(str(error).startswith(f"{path} is damaged"))
    assert refusals == {True}
    assert all(body == BODY for _, body in served)
    assert {position for position, _ in served} <= {len(data) - 1}, "only the final newline may be another blank"


def test_a_document_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    data = encode_document(BODY)
    for length in range(len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(CorruptStateError, match=r"document.json"):
            read_document(path)


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"7", b'{"body":{}}', b'{"checksum":"00000000"}', b"\xff\xfe"])
def test_what_is_no_document_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "document.json"
    path.write_bytes(text)
    with pytest.raises(CorruptStateError, match=r"document.json is damaged"):
        read_document(path)


def test_a_missing_document_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorruptStateError, match=r"nowhere.json is missing"):
        read_document(tmp_path / "nowhere.json")


def test_a_location_is_a_path_or_a_file_uri() -> None:
    assert local_path("/a/b") == Path("/a/b")
    assert local_path("file:///a/b%20c") == Path("/a/b c")
    assert local_path("file:/a/b") == Path("/a/b")
    assert local_path("relative") == Path.cwd() / "relative"


@pytest.mark.parametrize("location", ["s3://bucket/a", "hdfs:///a", "file://elsewhere/a"])
def test_a_location_that_is_no_directory_of_ours_is_refused(location: str) -> None:
    with pytest.raises(ConfigError, match=location):
        local_path(location)


def test_a_new_folder_is_flushed_with_all_that_is_new_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(store, "sync", flushed.append)
    make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert set(flushed) == {tmp_path, tmp_path / "a", tmp_path / "a" / "b"}
    flushed.clear()
    make_folder(tmp_path / "a" / "b")
    assert flushed == []
