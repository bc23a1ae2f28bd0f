"""Read a folder of ``torch.distributed.checkpoint``: the tensors that its ``.metadata`` lists, each put together from
the pieces that the processes wrote.

``.metadata`` is a pickle of protocol 4: the size of every tensor, the pieces that it is divided into, and the file,
offset and length of each. A piece is a file of ``torch.save`` with one tensor, whose dtype and CRC are its own. The
pieces of a tensor must form a grid: without holes, overlaps or more than one size per row of it. Bytes of a divided
tensor are read from its pieces when they are asked for; no whole tensor is put together before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from math import prod

from wdport.base.limits import MAX_DEPTH, MAX_PICKLE_BYTES, MAX_RANK, MAX_TENSORS
from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import COPY_AGAIN, MERGE_DCP, Fault
from wdport.checkpoint.pickle_machine import audit, run
from wdport.checkpoint.regular_file import inside
from wdport.checkpoint.sharded import MAX_SHARDS
from wdport.checkpoint.source import Contents, Source, Span
from wdport.checkpoint.tensor import ITEMSIZE, StorageRef, TensorRef, row_major, tensor_ref
from wdport.checkpoint.torch_file import read_torch_zip
from wdport.checkpoint.unloaded_object import UnloadedObject

Lengths = tuple[int, ...]


@dataclass(frozen=True)
class _Place:
    """Where a piece is stored."""

    file: str
    offset: int
    length: int


class _Window(Source):
    """A range of an open file, read as a file."""

    def __init__(self, file: Source, place: _Place) -> None:
        self.path, self.size, self.observer = file.path, place.length, None
        self._file, self._start = file, place.offset

    def read_unobserved(self, offset: int, target: memoryview) -> None:
        self._file.read_unobserved(self._start + offset, target)


@dataclass(slots=True)
class DividedSpan(Span):
    """The bytes of a tensor of ``shape`` in C order, whose pieces are spans; ``source`` and ``start`` are those of the
    first."""

    shape: Lengths = ()
    starts: tuple[Lengths, ...] = ()
    """Where the pieces begin, along every axis."""
    pieces: dict[Lengths, Span] = field(default_factory=dict)
    """By the numbers of their places along every axis."""
    itemsize: int = 1

    def read_into(self, target: memoryview, offset: int = 0) -> None:
        """Fill ``target`` from ``offset``, piece by piece; the first read of a piece checks its CRC."""
        done = 0
        while done < len(target):
            piece, start, count = self._run((offset + done) // self.itemsize)
            # The offset need not be that of an element.
            start, left = start * self.itemsize, count * self.itemsize
            skipped = (offset + done) % self.itemsize
            count = min(left - skipped, len(target) - done)
            piece.read_into(target[done : done + count], start + skipped)
            done += count

    def _run(self, element: int) -> tuple[Span, int, int]:
        """Return the piece of an element, its number in that, and how many elements follow in both, with itself."""
        index, rest = [], element
        for step in row_major(self.shape):
            index.append(rest // step)
            rest %= step
        places = tuple(bisect_right(starts, place) - 1 for starts, place in zip(self.starts, index, strict=True))
        sizes = [(*starts, size)[place + 1] - starts[place]
                 for starts, size, place in zip(self.starts, self.shape, places, strict=True)]  # fmt: skip
        within = [place - starts[number]
                  for place, starts, number in zip(index, self.starts, places, strict=True)]  # fmt: skip
        inner = sum(place * step for place, step in zip(within, row_major(tuple(sizes)), strict=True))
        # Elements are consecutive from the last divided axis on.
        axis = max((axis for axis, starts in enumerate(self.starts) if len(starts) > 1), default=0)
        block = prod(sizes[axis:])
        return self.pieces[places], inner, block - inner % block


def read_distributed(source: Source) -> Contents:
    """Parse ``.metadata`` and the heads of all pieces; opened files are closed on failure."""
    metadata = _attributes(_unpickled(source), "the metadata")
    tensors, stored = (_table(metadata, name) for name in ("state_dict_metadata", "storage_data"))
    if len(tensors) > MAX_TENSORS or len(stored) > MAX_TENSORS:
        raise Fault(f"more than {MAX_TENSORS} tensors or pieces", MERGE_DCP)
    places = _places(stored)
    folder = _Folder(source)
    leaves: dict[str, object] = {}
    try:
        for name, entry in tensors.items():
            if not isinstance(name, str):
                raise Fault("a tensor's name is not text", COPY_AGAIN)
            facts = _attributes(entry, "an entry", optional=True)
            leaves[name] = folder.tensor(name, facts, places.get(name, {})) if "size" in facts else entry
        tree = _nested(leaves, metadata.get("planner_data"))
        audit(tree)
    except BaseException:
        folder.close()
        raise
    return Contents("torch-distributed", tree, folder.spans, [source, *folder.files.values()])


class _Folder:
    """The open files of a folder, and the spans of the tensors that were found in them."""

    def __init__(self, source: Source) -> None:
        self._path = source.path.parent
        self._chunks = 0
        self.files: dict[str, Source] = {}
        self.spans: dict[str, Span] = {}

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    def tensor(self, name: str, facts: Mapping[object, object], places: Mapping[Lengths, _Place]) -> object:
        """Return a tensor of the whole size, whose span reads from all pieces; an inert leaf if its kind is not
        read."""
        shape, sizes = _lengths(facts.get("size"), name), dict[Lengths, Lengths]()
        chunks = _list(facts.get("chunks"), name)
        # One list may be that of many tensors.
        self._chunks += len(chunks)
        if self._chunks > MAX_TENSORS:
            raise Fault(f"more than {MAX_TENSORS} pieces", MERGE_DCP)
        for chunk in chunks:
            part = _attributes(chunk, name)
            offsets, lengths = (_lengths(part.get(key), name) for key in ("offsets", "sizes"))
            # A process for which nothing is left writes an empty piece.
            if 0 not in lengths or offsets not in sizes:
                sizes[offsets] = lengths
        starts = _grid(name, shape, sizes)
        pieces: dict[Lengths, tuple[TensorRef, Span]] = {}
        for numbers in product(*(range(len(axis)) for axis in starts)):
            offsets = tuple(axis[number] for axis, number in zip(starts, numbers, strict=True))
            if offsets not in places:
                raise Fault(f"has no piece that begins at {list(offsets)}", COPY_AGAIN, name)
            leaf, span = self._piece(name, places[offsets], sizes[offsets])
            if isinstance(leaf, UnloadedObject):
                return leaf
            pieces[numbers] = leaf, span
        key = str(len(self.spans))
        ref, self.spans[key] = next(iter(pieces.values()))
        if len(pieces) == 1:
            return replace(ref, storage=replace(ref.storage, key=key))
        self.spans[key] = _divided(name, shape, starts, pieces)
        return tensor_ref(StorageRef(key, ref.dtype, prod(shape)), 0, shape, row_major(shape))

    def _piece(self, name: str, place: _Place, shape: Lengths) -> tuple[TensorRef | UnloadedObject, Span]:
        """Return a piece and its bytes, or why its kind is not read."""
        file = self._file(place.file)
        with located(file.path, name):
            if place.offset + place.length > file.size:
                raise Fault(f"its piece ends at byte {place.offset + place.length} of a file that has {file.size}")
            contents = read_torch_zip(_Window(file, place))
            ref = contents.tree
            if isinstance(ref, UnloadedObject) and ref.reason:
                return ref, Span(file, place.offset, place.length, None, name)
            if not isinstance(ref, TensorRef) or ref.shape != shape:
                raise Fault(f"its piece is not a tensor of the size {list(shape)} that the metadata states", COPY_AGAIN)
            stored = contents.spans[ref.storage.key]
            return ref, replace(stored, source=file, start=place.offset + stored.start)

    def _file(self, name: str) -> Source:
        if name not in self.files:
            if len(self.files) >= MAX_SHARDS:
                raise Fault(f"has more than {MAX_SHARDS} files", MERGE_DCP)
            path = inside(self._path, name)
            with located(path):
                self.files[name] = Source(path)
        return self.files[name]


def _divided(
    name: str, shape: Lengths, starts: tuple[Lengths, ...], pieces: Mapping[Lengths, tuple[TensorRef, Span]]
) -> DividedSpan:
    """Return the span of a tensor in several pieces, each of which must fill its bytes in C order."""
    refs = [ref for ref, _ in pieces.values()]
    if any(ref.dtype != refs[0].dtype for ref in refs):
        raise Fault("has pieces of several dtypes", COPY_AGAIN, name)
    if any(not ref.contiguous or ref.offset or ref.nbytes != span.nbytes for ref, span in pieces.values()):
        raise Fault("has pieces that are views of other values, which are not read", MERGE_DCP, name)
    spans, size = {numbers: span for numbers, (_, span) in pieces.items()}, ITEMSIZE[refs[0].dtype]
    first = next(iter(spans.values()))
    return DividedSpan(first.source, first.start, prod(shape) * size, None, name, False, shape, starts, spans, size)


def _grid(name: str, shape: Lengths, sizes: Mapping[Lengths, Lengths]) -> tuple[Lengths, ...]:
    """Return where pieces begin along every axis; they must divide ``shape`` into a grid."""
    if not sizes or any(len(offsets) != len(shape) or len(lengths) != len(shape) for offsets, lengths in sizes.items()):
        raise Fault("has no pieces of its own number of axes", COPY_AGAIN, name)
    # An empty piece, of a process for which nothing is left, begins where another one ends.
    full = {offsets: lengths for offsets, lengths in sizes.items() if 0 not in lengths}
    full = full or dict([*sizes.items()][:1])
    starts = tuple(tuple(sorted({offsets[axis] for offsets in full})) for axis in range(len(shape)))
    ends = [(*axis[1:], size) for axis, size in zip(starts, shape, strict=True)]
    if prod(map(len, starts)) != len(full) or any(axis[0] for axis in starts):
        raise Fault("has pieces that leave holes or overlap", MERGE_DCP, name)
    for offsets, lengths in full.items():
        numbers = [bisect_right(axis, offset) - 1 for axis, offset in zip(starts, offsets, strict=True)]
        if any(offset + length != end[number]
               for offset, length, end, number in zip(offsets, lengths, ends, numbers, strict=True)):  # fmt: skip
            raise Fault("has pieces that leave holes or overlap", MERGE_DCP, name)
    return starts


def _unpickled(source: Source) -> object:
    if source.size > MAX_PICKLE_BYTES:
        raise Fault(f"has {source.size} bytes (at most {MAX_PICKLE_BYTES} are read)", MERGE_DCP)
    pickled = run(source.read(0, source.size), later=True)
    if pickled.end != source.size:
        raise Fault(f"{source.size - pickled.end} bytes follow the end of the pickle")
    return pickled.tree


def _attributes(value: object, name: str, optional: bool = False) -> Mapping[object, object]:
    state = value.state if isinstance(value, UnloadedObject) and not value.altered else None
    if not isinstance(state, dict) and not optional:
        raise Fault("is not described as torch.distributed.checkpoint does", COPY_AGAIN, name)
    return state if isinstance(state, dict) else {}


def _table(metadata: Mapping[object, object], name: str) -> Mapping[object, object]:
    value = metadata.get(name)
    if not isinstance(value, dict):
        raise Fault(f"its metadata has no {name}", COPY_AGAIN)
    return value


def _list(value: object, name: str) -> list[object]:
    if not isinstance(value, list):
        raise Fault("has no list of pieces", COPY_AGAIN, name)
    return value


def _lengths(value: object, name: str) -> Lengths:
    if not isinstance(value, tuple) or len(value) > MAX_RANK:
        raise Fault(f"has a size or an offset that is not of at most {MAX_RANK} numbers", COPY_AGAIN, name)
    if not all(type(length) is int and 0 <= length < 1 << 62 for length in value):
        raise Fault("has a size or an offset that is not of natural numbers", COPY_AGAIN, name)
    return value


def _places(storage: Mapping[object, object]) -> dict[str, dict[Lengths, _Place]]:
    """Return the places of the pieces of every tensor, by their offsets."""
    places: dict[str, dict[Lengths, _Place]] = {}
    every: list[_Place] = []
    for key, value in storage.items():
        index, stored = _attributes(key, "an index"), _attributes(value, "a piece")
        name, offsets = index.get("fqn"), index.get("offset")
        match (name, stored.get("relative_path"), stored.get("offset"), stored.get("length")):
            case (str(name), str(file), int(offset), int(length)) if offset >= 0 and length >= 0:
                if stored.get("transform_descriptors"):
                    raise Fault("is compressed, which is not read", MERGE_DCP, name)
                every.append(_Place(file, offset, length))
                if offsets is not None:  # an object that is no tensor has none
                    places.setdefault(name, {}).setdefault(_lengths(offsets, name), every[-1])
            case _:
                raise Fault("a piece is not described as torch.distributed.checkpoint does", COPY_AGAIN)
    files: dict[str, list[_Place]] = {}
    for place in every:
        files.setdefault(place.file, []).append(place)
    for file, ranges in files.items():
        ranges.sort(key=lambda place: (place.offset, place.length))
        if any(place.offset + place.length > other.offset for place, other in pairwise(ranges)):
            raise Fault("has pieces that overlap in the file", COPY_AGAIN, file)
    return places


def _nested(leaves: Mapping[str, object], paths: object) -> dict[object, object]:
    """Return the leaves in the tables that they were saved in, if the metadata says so."""
    tree: dict[object, object] = {}
    for name, leaf in leaves.items():
        path = paths.get(name) if isinstance(paths, dict) else None
        if not (isinstance(path, tuple) and 0 < len(path) <= MAX_DEPTH and {*map(type, path)} <= {str, int}):
            path = (name,)
        *above, last = path
        table = tree
        for step in above:
            below = table.setdefault(step, {})
            if not isinstance(below, dict):
                raise Fault("is stored below a tensor", COPY_AGAIN, name)
            table = below
        if last in table:
            raise Fault("two entries have this name", COPY_AGAIN, name)
        table[last] = leaf
    return tree
