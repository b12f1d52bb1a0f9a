"""Manifests survive being written down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.state.manifest import Manifest, OperatorState
from anabranch.state.runs.merge import Merge
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.slice import Slice
from anabranch.state.runs.spine import Spine
from anabranch.state.statistics import Statistics
from anabranch.state.store import encode_document, read_document
from tests.oracle.profiles import examples

times = st.none() | st.integers(-(2**60), 2**60)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    files = [
        RunFile(
            f"{n}.arrow", rows, draw(st.integers(0, 2**40)), draw(st.integers(0, 2**32 - 1)), draw(times), draw(times)
        )
        for n, rows in enumerate(draw(st.lists(st.integers(1, 2**40), min_size=1, max_size=4)))
    ]

    def cut(file: RunFile, edges: tuple[int, int]) -> Slice:
        start, stop = sorted(edge % (file.rows + 1) for edge in edges)
        return Slice(file, start, stop)

    edges = st.integers(0, 2**40)
    slices = st.builds(cut, st.sampled_from(files), st.tuples(edges, edges))
    runs = st.lists(slices, min_size=1, max_size=3).map(tuple)
    merges = st.builds(Merge, st.just(()) | runs, st.lists(runs, min_size=1, max_size=3).map(tuple))
    spines = st.builds(Spine, st.lists(runs, max_size=3).map(tuple), st.lists(merges, max_size=2).map(tuple))
    return Manifest(tuple(draw(st.lists(spines, min_size=1, max_size=4))))


@examples(40)
@given(manifest=manifests())
def test_a_manifest_comes_back_from_its_document_as_it_was(
    manifest: Manifest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "manifest.json"
    path.write_bytes(encode_document(manifest.to_json()))
    assert Manifest.from_json(read_document(path)) == manifest


def test_ports_and_operators_without_anything_are_null_in_the_document() -> None:
    known = OperatorState(statistics=Statistics().dense(1, 2))
    manifest = Manifest(
        (Spine(), Spine(((Slice(RunFile("a.arrow", 2, 9, 7, None, None), 0, 2),),))), (OperatorState(), known)
    )
    document = manifest.to_json()
    assert [entry is None for entry in (*document["inputs"], *document["operators"])] == [True, False, True, False]
    assert Manifest.from_json(document) == manifest
    nothing = OperatorState(statistics=known.statistics.present())
    assert not nothing.is_blank, "it has run: the ports whose rows it counts are known"
    assert Manifest.from_json(Manifest((), (nothing,)).to_json()).operators == (nothing,)


@examples(30)
@given(manifest=manifests())
def test_a_manifest_names_every_file_and_counts_every_row_it_lists(manifest: Manifest) -> None:
    slices = [piece for spine in manifest.spines for piece in spine.slices()]
    assert set(manifest.files()) == {piece.file.name for piece in slices}
    assert all(manifest.files()[piece.file.name] == piece.file for piece in slices)
    assert manifest.rows == sum(piece.stop - piece.start for piece in slices)
    assert manifest.bytes == sum(piece.bytes for piece in slices)


@examples(30)
@given(manifest=manifests())
def test_the_union_of_manifests_lists_both(manifest: Manifest) -> None:
    empty = Manifest.empty(len(manifest.spines))
    assert empty.rows == empty.bytes == 0
    assert empty.union(manifest) == manifest
    both = manifest.union(manifest)
    assert both.rows == 2 * manifest.rows
    assert both.files() == manifest.files()


def test_manifests_of_different_queries_have_no_union() -> None:
    with pytest.raises(ValueError, match="zip"):
        Manifest.empty(2).union(Manifest.empty(3))
