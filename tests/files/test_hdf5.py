"""The strict HDF5 reader against h5py, on real and random files, and the files that it refuses."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.files.hdf5_reference import by_h5py, by_us, tree
from wdport.base.errors import InputError
from wdport.base.limits import MAX_DEPTH
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.source import Source
from wdport.files.hdf5.structure import read_hdf5
from wdport.files.keras_file import ArchiveWriter, WeightsWriter

LAYERS = {f"blocks/{index}/attention/{name}": (3, 2) for index in range(12) for name in ("kernel", "bias", "größe")}


def test_what_keras_writes(saved_models: list[Path]) -> None:
    for path in saved_models:
        raw = path.read_bytes()
        if path.suffix == ".keras":
            raw = zipfile.ZipFile(path).read("model.weights.h5")
        facts = by_us(raw)
        assert facts == by_h5py(raw)
        assert sum(bool(dtype) for dtype, *_ in facts.values()) >= 2


@pytest.mark.parametrize("manifest", ["{}", "facts " * 20_000])
def test_what_we_write(tmp_path: Path, manifest: str) -> None:
    shapes = {**LAYERS, "top/alone": (), "top/nothing": (0, 3)}
    for path in (tmp_path / "a.weights.h5", tmp_path / "a.keras"):
        writer = (
            WeightsWriter(path, shapes)
            if path.suffix == ".h5"
            else ArchiveWriter(path, shapes, '{"class_name": "Model"}')
        )
        for number, (name, shape) in enumerate(shapes.items()):
            writer.write(name, np.full(shape, number, np.float32))
        writer.finish(manifest)
        raw = path.read_bytes()
        if path.suffix == ".keras":
            raw = zipfile.ZipFile(path).read("model.weights.h5")
        assert by_us(raw) == by_h5py(raw)


any_character = st.characters(exclude_categories=["Cs"], exclude_characters="\0/")
ascii_character = st.characters(codec="ascii", exclude_characters="\0/")


def paths_of(characters: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    names = st.text(characters, min_size=1, max_size=12).filter(lambda name: name not in (".", ".."))
    return st.lists(names, min_size=1, max_size=5).map("/".join)


names = st.text(any_character, min_size=1, max_size=12)
dtypes = st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?"])
shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
arrays = st.builds(lambda dtype, shape, fill: np.full(shape, fill, dtype), dtypes, shapes, st.integers(0, 100))
values = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.binary(min_size=1, max_size=20).map(lambda raw: np.bytes_(raw.hex())),
)


@settings(max_examples=60)
@given(
    st.one_of(
        st.dictionaries(paths_of(ascii_character), st.one_of(st.none(), arrays), max_size=40),
        # More than eight in a group, of which one is beyond ASCII, are refused.
        st.dictionaries(paths_of(any_character), st.one_of(st.none(), arrays), max_size=8),
    ),
    st.lists(st.dictionaries(names, values, max_size=9), max_size=10),
)
def test_random_trees(wanted: dict[str, Any], attributes: list[dict[str, Any]]) -> None:
    items: dict[str, Any] = {}
    for path, value in wanted.items():  # no name below that of an array
        clash = any(a.startswith(f"{b}/") for other in items for a, b in ((path, other), (other, path)))
        if not clash:
            items[path] = value
    raw = tree(items, dict(zip(["", *items], attributes, strict=False)))
    assert by_us(raw) == by_h5py(raw)


@pytest.mark.parametrize("count", [0, 1, 8, 9, 255, 256, 257])
def test_groups_of_every_size(count: int) -> None:
    order = np.random.default_rng(count).permutation(count)
    raw = tree({f"layer_{number}": np.float32(number) for number in order})
    assert by_us(raw) == by_h5py(raw)
    assert len(by_us(raw)) == count + 1


def test_an_index_of_three_levels() -> None:
    """Names that come in order leave every node of links half full."""
    raw = tree({f"{number:04}": np.float32(number) for number in range(3700)})
    assert b"TREE\0\2" in raw
    assert by_us(raw) == by_h5py(raw)


def test_names_beyond_ascii() -> None:
    def layers(count: int) -> bytes:
        names = [f"layers/größe_{number}" for number in range(count)]
        return tree(
            {**dict.fromkeys(names), **{f"{name}/vars/0": np.ones(2) for name in names}}, {names[1]: {"名": "ü"}}
        )

    assert by_us(layers(8)) == by_h5py(layers(8))
    with pytest.raises(Fault, match="non-ASCII name and more than eight members"):
        by_us(layers(9))


def test_forms_that_h5py_writes_when_asked() -> None:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.create_dataset("timed", data=np.ones(3), track_times=True)
        file.create_dataset("empty", data=np.ones((0, 3)))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((5,))
        compact = h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F32LE, space, plist)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(5, dtype=np.float32))
        file.create_dataset(b"gr\xc3\xb6\xc3\x9fe", data=np.ones(2))  # UTF-8, but not said to be
        for number in range(60):  # many, so that the header goes on elsewhere
            file["timed"].attrs[f"attribute {number}"] = f"{number}" * number
    raw = buffer.getvalue()
    facts = by_us(raw)
    assert facts == by_h5py(raw)
    assert len(facts) == 5
    assert len(facts["timed"][3]) == 60


def test_after_deletions() -> None:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for number in range(50):
            file[f"layers/dense_{number}/vars/0"] = np.float32(number)
        for number in range(0, 50, 3):
            del file[f"layers/dense_{number}"]
        file["layers/late/vars/0"] = np.ones(1000)
    raw = buffer.getvalue()
    assert by_us(raw) == by_h5py(raw)


LAYOUT = h5py.VirtualLayout((3,), "f4")
LAYOUT[:] = h5py.VirtualSource("/etc/passwd", "a", (3,))

FOREIGN: dict[str, tuple[Callable[[h5py.File], object], str]] = {
    "external storage": (lambda f: f.create_dataset("v", (4,), "u1", external=[("/etc/passwd", 0, 4)]),
                         "v: has its data in another file"),
    "external link": (lambda f: f.__setitem__("v", h5py.ExternalLink("/etc/passwd", "/a")),
                      "v: is a link to another file"),
    "soft link": (lambda f: f.__setitem__("v", h5py.SoftLink("/ok")), "v: is a link to another place"),
    "hard link": (lambda f: f.__setitem__("v", f["ok"]), "ok: has several names"),
    "hard link to a group": (lambda f: f.__setitem__("v", f.create_group("g")), "g: has several names"),
    "loop": (lambda f: f.__setitem__("v", f["/"]), "has several names"),
    "virtual": (lambda f: f.create_virtual_dataset("v", LAYOUT), "v: is an HDF5 array of another form than version 3"),
    "chunked": (lambda f: f.create_dataset("v", (4,), "f4", chunks=(2,)), "v: is stored in chunks"),
    "growing": (lambda f: f.create_dataset("v", (4,), "f4", maxshape=(None,)), "v: can change its shape"),
    "compressed": (lambda f: f.create_dataset("v", data=np.ones(1000), compression="gzip"),
                   "v: has compressed or filtered data"),
    "checksummed": (lambda f: f.create_dataset("v", data=np.ones(1000), fletcher32=True),
                    "v: has compressed or filtered data"),
    "text of any length": (lambda f: f.create_dataset("v", data=["a", "b"], dtype=h5py.string_dtype()), "v: holds"),
    "text": (lambda f: f.create_dataset("v", data=np.array([b"ab", b"cd"])), "v: holds text"),
    "lists": (lambda f: f.create_dataset("v", (2,), h5py.vlen_dtype("i4")), "v: holds"),
    "record": (lambda f: f.create_dataset("v", (2,), np.dtype([("a", "f4")])), "v: holds a record"),
    "complex": (lambda f: f.create_dataset("v", (2,), "c8"), "v: holds"),
    "references": (lambda f: f.create_dataset("v", (2,), h5py.ref_dtype), "v: holds a reference"),
    "enum": (lambda f: f.create_dataset("v", (2,), h5py.enum_dtype({"A": 0, "B": 1}, "i1")),
             "v: holds a list of names"),
    "raw bytes": (lambda f: f.create_dataset("v", (2,), "V2"), "v: holds raw bytes"),
    "wide floats": (lambda f: f.create_dataset("v", (2,), np.longdouble), "v: holds numbers of a type"),
    "big-endian": (lambda f: f.create_dataset("v", (2,), ">f4"), "v: holds numbers of a type"),
    "named type": (lambda f: f.__setitem__("v", np.dtype("f4")), "v: its HDF5 header has a message of an unknown form"),
    "never written": (lambda f: f.create_dataset("v", (4,), "f4"), "v: was never written"),
    "null": (lambda f: f.create_dataset("v", data=h5py.Empty("f4")), "v: has an HDF5 dataspace of another form"),
    "array attribute": (lambda f: f["ok"].attrs.create("a", [1, 2]), "ok: has an attribute 'a' that is an array"),
    "null attribute": (lambda f: f["ok"].attrs.create("a", h5py.Empty("f4")),
                       "ok: has an HDF5 dataspace of another form"),
    "reference attribute": (lambda f: f["ok"].attrs.create("a", f["ok"].ref, dtype=h5py.ref_dtype),
                            "ok: has an attribute 'a' that is neither"),
    "ordered group": (lambda f: f.create_group("v", track_order=True), "v: is an HDF5 object of another form"),
    "comment": (lambda f: h5py.h5o.set_comment(f.id, b"a comment", obj_name=b"ok"), "ok: has a comment"),
    "filled": (lambda f: f.create_dataset("v", data=np.ones(3), fillvalue=7.0),
               "v: has a fill value of an older HDF5 form"),
    "dot dot": (lambda f: f.__setitem__("..", np.ones(3)), "an unsafe name"),
    "not UTF-8": (lambda f: f.__setitem__(b"\xff", np.ones(3)), "a name in the HDF5 file is not UTF-8"),
    "absurd shape": (lambda f: f.create_dataset("v", data=np.empty((0, 10**9, 10**9), "i1")), "v: has shape"),
    "deep": (lambda f: f.create_group("/".join("g" * (MAX_DEPTH + 5))), "g/g/g"),
}  # fmt: skip
"""What is added to a sound file, and how the line of its refusal begins."""


def refusal(path: Path) -> str:
    """The line that a user reads."""
    from wdport.checkpoint.error_context import located

    source = Source(path)
    with pytest.raises(InputError) as caught, located(path):
        read_hdf5(source.read, source.size)
    source.close()
    return str(caught.value)


@pytest.mark.parametrize("kind", FOREIGN)
def test_refused_by_name(kind: str, tmp_path: Path) -> None:
    path, (add, said) = tmp_path / "model.weights.h5", FOREIGN[kind]
    with h5py.File(path, "w") as file:
        file["ok"] = np.ones(3, np.float32)
        add(file)
    line = refusal(path)
    assert f"{path}: {said}" in line
    assert len(f"error: {line}") <= 240 + len(str(path))
    assert "\n" not in line
    assert line.count("; ") == 1


@pytest.mark.parametrize(
    "options", [{"libver": "latest"}, {"libver": "v108"}, {"userblock_size": 512}, {"fs_strategy": "page"}]
)
def test_refused_forms(options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    with h5py.File(path, "w", **options) as file:
        file["layers/dense/vars/0"] = np.ones(3)
    assert "HDF5" in refusal(path)


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04" * 50, b"\x89HDF\r\n\x1a\n", b"\0" * 4096])
def test_no_hdf5_file(raw: bytes) -> None:
    with pytest.raises(Fault, match="is not an HDF5 file"):
        by_us(raw)


def test_a_file_cut_short_or_extended_anywhere() -> None:
    raw = tree({"a/vars/0": np.ones(9), "b/vars/0": np.ones(9)}, {"a": {"name": "a"}})
    for length in range(0, len(raw), 7):
        with pytest.raises(Fault):
            by_us(raw[:length])
    with pytest.raises(Fault, match="appended"):
        by_us(raw + b"\0")
