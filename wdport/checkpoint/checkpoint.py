"""Open a checkpoint and read its tensors, by the network's names, as numpy arrays.

Opening reads only names, shapes and offsets. Reading a tensor reads only the bytes of its storage.
What is not read is listed, each with its place: ``hyper_parameters (class pytorch_lightning...AttributeDict)``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from wdport.base.errors import InputError, MisfitError, UsageError, printable
from wdport.base.limits import MAX_UNREAD
from wdport.checkpoint.distributed import read_distributed
from wdport.checkpoint.error_context import located
from wdport.checkpoint.experiment import TrainingConfig, adjacent_config, is_archive, open_archive
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.model_folder import DISTRIBUTED, INDEX, Folder, open_folder
from wdport.checkpoint.safetensors import omitted_names, read_safetensors
from wdport.checkpoint.sharded import read_sharded
from wdport.checkpoint.sniff import HEAD, sniff
from wdport.checkpoint.source import CHUNK, Contents, RunningHash, Source
from wdport.checkpoint.state_dict import NameCollision, NetworkNames, StateDict, find_state_dict, strip_prefixes
from wdport.checkpoint.symbols import Constructor
from wdport.checkpoint.tensor import ITEMSIZE, StorageClass, TensorInfo, TensorRef
from wdport.checkpoint.torch_file import read_legacy, read_torch_zip
from wdport.checkpoint.unloaded_object import UnloadedObject

if TYPE_CHECKING:
    from wdport.checkpoint.source import Array

_LONGEST_PLACE: Final = 200
_LONGEST_LINE: Final = 400

_Place = tuple["_Place | None", object]
"""The parent place and the key: joined only for a message."""


def not_read(tree: object, read: object, more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return a line for each inert leaf outside ``read``, the object with the tensors, and the lines of ``more``."""
    lines = [printable(line, _LONGEST_LINE) for line in more]
    visited: set[int] = set()
    pending: list[tuple[object, _Place | None]] = [(tree, None)]
    while pending:
        node, place = pending.pop()
        if node is read:
            continue
        if isinstance(node, (dict, list, tuple)):
            if id(node) not in visited:
                visited.add(id(node))
                pairs = list(node.items() if isinstance(node, dict) else enumerate(node))
                # Reversed, since the last one is taken first: lines come in the file's order. No recursion: a file is
                # 100 deep, and a place is text only if a line needs it.
                pending += [(child, (place, key)) for key, child in reversed(pairs)]
        elif isinstance(node, UnloadedObject):
            lines.append(_line(place, node.described, lines))
        elif isinstance(node, (Constructor, StorageClass)):
            lines.append(_line(place, f"name {node.name}", lines))
    more_lines = len(lines) - MAX_UNREAD
    return (*lines[:MAX_UNREAD], f"and {more_lines} more") if more_lines > 0 else tuple(lines)


def _line(place: _Place | None, what: str, lines: list[str]) -> str:
    if len(lines) >= MAX_UNREAD:
        return ""  # only counted
    parts: list[str] = []
    while place is not None:
        place, key = place
        parts.append(f"<{key.described}>" if isinstance(key, UnloadedObject) else printable(key, _LONGEST_PLACE))
    where = printable(".".join(reversed(parts)), _LONGEST_PLACE)
    return printable(f"{where} ({what})" if where else what, _LONGEST_LINE)


_PICKLED = ("torch-zip", "torch-legacy", "torchscript")


class Checkpoint:
    """An open checkpoint; a context manager that closes its files. Made by :func:`open_checkpoint`."""

    def __init__(
        self,
        path: Path,
        contents: Contents,
        state_dict: StateDict,
        names: NetworkNames,
        folder: Folder | None = None,
        packed: bool = False,
        configured: TrainingConfig | None = None,
    ) -> None:
        self.path = path
        """The file or folder, as given."""
        self.config = folder.config if folder else None
        """``config.json`` of a folder as plain data; None without one."""
        self.format = contents.format
        """``"torch-zip"``, ``"torch-legacy"``, ``"torchscript"``, ``"torch-sharded"``, ``"torch-distributed"``,
        ``"safetensors"`` or ``"safetensors-sharded"``."""
        self.layout = "averaged" if names.averaged else state_dict.layout
        """``"lightning"``, ``"keyed"`` (under another key), ``"nested"`` (tables of one model), ``"module"`` (a whole
        module), ``"bare"`` or ``"averaged"``."""
        self.key = state_dict.key
        """Dotted key of the state_dict inside the file, None if the file itself is the state_dict."""
        self.prefixes = names.prefixes
        """Prefixes stripped from all names, outermost first."""
        self.tensors = {
            name: TensorInfo(name, ref.dtype, ref.shape, ref.nbytes, stored, ref)
            for stored, name in names.network_names.items()
            for ref in (state_dict.tensors[stored],)
        }
        """Every tensor of the state_dict by the network's name, in the file's order."""
        self.ignored = names.ignored
        """Entries of the state_dict that do not belong to the network, with the reason."""
        self.metadata: dict[str, object] = contents.metadata | state_dict.metadata
        """Plain values stored with the state_dict, such as epoch and global_step."""
        self.parts = state_dict.parts
        """Keys of tables in the state_dict, with whose names those of their tensors were joined by dots."""
        self.other_keys = state_dict.other_keys
        """Top-level keys other than the state_dict's."""
        self.not_read = not_read(contents.tree, state_dict.node, state_dict.not_read)
        """Content of the file that was not read, such as objects of unknown classes: one line each."""
        self.tree = contents.tree if contents.format in _PICKLED else None
        """The whole symbolic object (plain containers, tensor and inert leaves); None for safetensors and shards."""
        self.omitted: frozenset[str] = frozenset()
        """Stored names of tensors that the file has only under another name, which its metadata states."""
        self._contents = contents
        self._folder = folder
        self._packed, self._configured = packed, configured

    @property
    def hyper_parameters(self) -> object:
        """The module's arguments that Lightning saved, as plain data; None if there are none."""
        return self.tree.get("hyper_parameters") if isinstance(self.tree, dict) else None

    @property
    def training_config(self) -> TrainingConfig | None:
        """The training configuration next to the checkpoint, in its folder or its archive; None if there is none."""
        if self._configured is None and not self._packed:
            with located(self.path):
                self._configured = adjacent_config(self._contents.sources[0].path)
        return self._configured

    @property
    def files(self) -> dict[str, Path]:
        """All files that are read, by label: the file, or an index and its shards; for a folder also its config."""
        index, *shards = (source.path for source in self._contents.sources)
        config = {"config": self._folder.source.path} if self._folder and self._folder.source else {}
        if self._configured is not None and not self._packed:
            config["training config"] = self._configured.path
        return {"checkpoint": index, **{f"shard {number}": path for number, path in enumerate(shards, 1)}, **config}

    def stream(self) -> IO[bytes]:
        """The file from its start, for another reader such as ``torch.load``; the caller closes it."""
        return self._contents.sources[0].stream()

    @property
    def shared(self) -> tuple[tuple[str, ...], ...]:
        """Names of the tensors that share a storage, for each shared storage."""
        users: dict[str, list[str]] = {}
        for name, info in self.tensors.items():
            users.setdefault(info.ref.storage.key, []).append(name)
        return tuple(tuple(names) for names in users.values() if len(names) > 1)

    def leave_out(self, prefix: str) -> None:
        """Remove a prefix that all names have, as those of :attr:`prefixes` were removed."""
        self.prefixes = (*self.prefixes, prefix)
        infos = {name.removeprefix(prefix): info for name, info in self.tensors.items()}
        self.tensors = {name: replace(info, name=name) for name, info in infos.items()}

    def give_names(self, names: Mapping[str, str]) -> None:
        """Rename tensors according to ``names`` (old to new); no two may become equal."""
        renamed = [(names.get(name, name), info) for name, info in self.tensors.items()]
        self.tensors = {name: replace(info, name=name) for name, info in renamed}

    def forget(self, names: Iterable[str]) -> None:
        """Remove these names of tensors that have others as well."""
        for name in names:
            del self.tensors[name]

    def also_name(self, name: str, other: str) -> None:
        """Let the tensor ``name`` have the name ``other`` as well, as a tied tensor does."""
        self.tensors[other] = replace(self.tensors[name], name=other)

    def read(self, name: str) -> Array:
        """Return the tensor with this name as an owned, C-contiguous array in native byte order.

        bfloat16 is widened to float32, which is exact. Raises :class:`InputError` if the bytes do not
        match their CRC (torch files; safetensors has none) or the file has become shorter.
        """
        info = self.tensors.get(name)
        if info is None:
            raise UsageError((self.path, name), "no tensor of that name", "see Checkpoint.tensors")
        return self._read(info.ref, name)

    def read_stored(self, name: str) -> Array:
        """Return the stored tensor: little-endian, bfloat16 as uint16 bits; raises as :meth:`read` does."""
        from wdport.checkpoint.source import read_stored

        ref = self.tensors[name].ref
        span = self._contents.spans[ref.storage.key]
        with located(span.source.path, name):
            return read_stored(ref, span)

    def read_run(self, name: str, start: int, target: memoryview, once: bool = False) -> None:
        """Fill ``target`` with stored bytes, starting at element ``start`` of the tensor's extent; raises as
        :meth:`read` does.

        ``once`` means that they are not read again, so that the page cache need not keep them.
        """
        ref = self.tensors[name].ref
        span = self._contents.spans[ref.storage.key]
        with located(span.source.path, name):
            first = (ref.storage.first + ref.offset + start) * ITEMSIZE[ref.dtype]
            span.read_into(target, first)
            if once:
                span.source.forget(span.start + first, len(target))

    def same(self, name: str, other: str) -> bool:
        """Return whether two tensors are equal in dtype, shape and every bit; compares in pieces if both are
        contiguous."""
        one, two = self.tensors[name].ref, self.tensors[other].ref
        if one == two or (one.dtype, one.shape) != (two.dtype, two.shape):
            return one == two
        # A strided tensor has no run of bytes to compare piece by piece; bits, not values, since NaN differs from
        # itself.
        if not (one.contiguous and two.contiguous):
            return self.read_stored(name).tobytes() == self.read_stored(other).tobytes()
        step = CHUNK // ITEMSIZE[one.dtype]
        for start in range(0, one.numel, step):
            ours, theirs = (bytearray(min(step, one.numel - start) * ITEMSIZE[one.dtype]) for _ in "ab")
            self.read_run(name, start, memoryview(ours))
            self.read_run(other, start, memoryview(theirs))
            if ours != theirs:
                return False
        return True

    def place(self, name: str) -> tuple[int, int]:
        """Return where a tensor begins: the number of its file, in the order of :meth:`file_sha256`, and its offset."""
        ref = self.tensors[name].ref
        span = self._contents.spans[ref.storage.key]
        first = span.start + (ref.storage.first + ref.offset) * ITEMSIZE[ref.dtype]
        return self._contents.sources.index(span.source), first

    def read_ref(self, ref: object) -> Array:
        """Read a tensor leaf of :attr:`tree`, such as an optimizer's moment, as :meth:`read` does."""
        if not isinstance(ref, TensorRef) or ref.storage.key not in self._contents.spans:
            raise UsageError(self.path, "not a tensor of this checkpoint", "give a TensorRef leaf of tree")
        return self._read(ref, f"storage {ref.storage.key}")

    def file_sha256(self) -> str:
        """Return the SHA-256 of the file, in hex; for a sharded checkpoint, of the index and then its shards in order.

        The ``config.json`` of a folder is not part of it. Raises as :meth:`require_unchanged` does.
        """
        digest = sha256_of(self._contents.sources)
        self.require_unchanged()
        return digest

    def hashed(self) -> RunningHash:
        """Compute the same hash from the bytes read while it is open, which saves a second read."""
        return RunningHash(self._contents.sources)

    def require_unchanged(self) -> None:
        """Raise :class:`InputError` if a file was written to or replaced since it was opened.

        Every read checks the open file; this method also checks the file that its path refers to now.
        """
        config = [self._folder.source] if self._folder and self._folder.source else []
        for source in [*self._contents.sources, *config]:
            with located(source.path):
                source.require_unchanged()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        for source in self._contents.sources:
            source.close()
        if self._folder:
            self._folder.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, ref: TensorRef, name: str) -> Array:
        # numpy takes half of this package's import time, and a refusal does without it.
        from wdport.checkpoint.source import read_tensor

        span = self._contents.spans[ref.storage.key]
        with located(span.source.path, name):
            return read_tensor(ref, span)


def open_checkpoint(
    path: str | PathLike[str], *, key: str | None = None, sha256: str | None = None, likely: str | None = None
) -> Checkpoint:
    """Open a PyTorch or safetensors checkpoint without executing anything in it.

    ``path`` is a file, or a folder with one checkpoint, as transformers and diffusers save it. ``key`` is the dotted
    key of the state_dict if the file holds more than one; "ema" is an average of the weights, and "raw" those that were
    trained. Without a key the ``likely`` one is chosen among several. ``sha256`` is the expected hash of the file (for
    a folder, of its weights file or index), which is then first read completely and checked; such a file may lack CRCs.
    Raises :class:`InputError` for a file that is damaged, unsafe or of another kind, :class:`MisfitError` for names
    that collide without their prefixes, and :class:`MachineError` if the system refuses.
    """
    file = Path(path)
    if "\0" in str(file):
        raise InputError(file, "a path cannot contain a zero byte", "check the path")
    with located(file), ExitStack() as undo:
        folder = open_folder(file) if file.is_dir() else None
        if folder:
            undo.callback(folder.close)
        weights = folder.weights if folder else file
        with located(weights):
            source = Source(weights)
        undo.callback(source.close)
        # The hash below is that of the checkpoint in an archive, not of the archive.
        packed = is_archive(source.read(0, min(HEAD, source.size)))
        configured: TrainingConfig | None = None
        if packed:
            source, configured = open_archive(source.path)
            undo.callback(source.close)
        # Before anything is parsed: a file that is not the expected one need not be understood.
        if sha256 is not None and sha256_of([source]) != sha256.lower():
            raise Fault("its SHA-256 is not the expected one", "check which file and which hash are meant")
        with located(source.path):
            contents = _parse(source, crc_optional=sha256 is not None)
        # A second close does nothing, so the first source may be on the stack twice.
        for opened in contents.sources:
            undo.callback(opened.close)
        omitted = omitted_names(contents)
        if omitted and isinstance(contents.tree, dict):
            contents.tree.update({name: contents.tree[other] for name, other in omitted.items()})
        state_dict = find_state_dict(contents.tree, key, likely)
        try:
            names = strip_prefixes(state_dict.tensors)
        except NameCollision as collision:
            first, second = collision.args
            what = f"has the same name as {second} once its prefix is stripped"
            raise MisfitError((file, first), what, "rename one of the two") from None
        checkpoint = Checkpoint(file, contents, state_dict, names, folder, packed, configured)
        checkpoint.omitted = frozenset(omitted)
        # From here on, the checkpoint closes the files.
        undo.pop_all()
        return checkpoint


def _parse(source: Source, *, crc_optional: bool) -> Contents:
    if source.path.name == DISTRIBUTED:
        return read_distributed(source)
    if source.path.name.endswith(INDEX):
        return read_sharded(source, _parse_file)
    return _parse_file(source, crc_optional=crc_optional)


def _parse_file(source: Source, *, crc_optional: bool = False) -> Contents:
    kind = sniff(source.read(0, min(HEAD, source.size)), source.path.name)
    if kind == "torch-zip":
        return read_torch_zip(source, crc_optional=crc_optional)
    return read_legacy(source) if kind == "torch-legacy" else read_safetensors(source)


def sha256_of(sources: list[Source]) -> str:
    """Return the SHA-256 of these files, one after another."""
    digest = hashlib.sha256()
    for source in sources:
        with located(source.path):
            source.add_to(digest)
    return digest.hexdigest()
