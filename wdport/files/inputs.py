"""The files that a command reads: what it writes, and the digests that it states, are of the content that they had when
the command began; otherwise it fails."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

from wdport.base.errors import InputError
from wdport.checkpoint.error_context import located
from wdport.checkpoint.experiment import CHECKPOINTS, CONFIGS
from wdport.checkpoint.regular_file import State, open_regular
from wdport.files.manifest_seal import INDEX, MANIFEST, file_sha256, folder_sha256, manifest_of

_GONE = State(-1, 0, 0, 0)


class Snapshot:
    """The present state of a file, or of the files in a folder: all that a conversion has written there, or those
    directly in the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._states = _states(path)
        self._sha256 = ""

    def require_unchanged(self) -> None:
        """Raise :class:`~wdport.base.errors.InputError` if a file was written to, replaced or removed since."""
        now = _states(self.path)
        for name, state in self._states.items():
            with located(self.path / name):
                state.require(now.get(name, _GONE))

    @property
    def sha256(self) -> str:
        """The SHA-256, see :func:`sha256_at`; raises as :meth:`require_unchanged` does, and for a pipe or a device."""
        if not self._sha256:
            with located(self.path):
                if not self.path.is_dir():
                    open_regular(self.path).close()  # reading something else may have no end
                file_hash = sha256_at(self.path)
            self.require_unchanged()
            # The hash is that of the content at the beginning, or there is none.
            self._sha256 = file_hash
        return self._sha256


class InputFiles(dict[str, Path]):
    """Input files by label, ``None`` and "" left out, with their states when this is made.

    A file that is written with these inputs (:func:`wdport.files.outputs.writable`) gets its name only if they are
    unchanged then, or were at :meth:`end_reading`.
    """

    def __init__(self, **files: str | os.PathLike[str] | None) -> None:
        super().__init__({name: Path(file) for name, file in files.items() if file})
        self._snapshots = {name: Snapshot(path) for name, path in self.items()}
        self._checks: list[Callable[[], object]] = []
        self._being_read = True

    def with_manifests(self, *names: str) -> Self:
        """Add the manifests next to those named, which are converted models, and return these inputs."""
        self.update({f"{name}'s manifest": manifest_of(self[name]) for name in names if name in self})
        return self

    def with_experiment(self, name: str) -> Self:
        """Add the training configuration next to a checkpoint, and of an experiment's folder its checkpoints, and
        return these inputs."""
        place = self.get(name)
        if place is not None:
            folder = place if place.is_dir() else place.parent
            beside = [folder / config for config in CONFIGS]
            if place.is_dir():
                with suppress(OSError):
                    beside += [path for path in place.iterdir() if path.suffix in CHECKPOINTS]
            for path in filter(Path.is_file, beside):
                label = f"{name}'s {path.name}"
                self[label], self._snapshots[label] = path, Snapshot(path)
        return self

    def require_present(self) -> None:
        """Raise :class:`~wdport.base.errors.InputError` if an input that was named does not exist."""
        for name in self._snapshots:
            if not os.path.lexists(self[name]):
                raise InputError(self[name], "no such file", "check the path")

    def check(self, require: Callable[[], object]) -> None:
        """Call a function that raises if an input is not the expected one, now and whenever they must be unchanged."""
        require()
        self._checks.append(require)

    def sha256(self, name: str) -> str:
        """Return the SHA-256 of an input; raises as :attr:`Snapshot.sha256` does."""
        return self._snapshots[name].sha256

    def require_unchanged(self) -> None:
        """Raise :class:`~wdport.base.errors.InputError` if an input has been changed before :meth:`end_reading`."""
        if self._being_read:
            for snapshot in self._snapshots.values():
                snapshot.require_unchanged()
            for require in self._checks:
                require()

    def end_reading(self) -> None:
        """Require that the inputs are unchanged, now that they have been read; later changes do not matter."""
        self.require_unchanged()
        self._being_read = False


def sha256_at(path: Path) -> str:
    """Return the SHA-256 of a file, or of a folder as :func:`folder_sha256` defines it: of its files, the index first,
    without the manifest."""
    if not path.is_dir():
        return file_sha256(path)
    names = [str(file.relative_to(path)) for file in sorted(path.rglob("*")) if file.is_file()]
    names = sorted(set(names) - {MANIFEST}, key=lambda name: (name != INDEX, name))
    # hashlib releases Python's lock, so two files are hashed at a time.
    with ThreadPoolExecutor(2) as pool:
        hashes = pool.map(lambda name: file_sha256(path / name), names)
        return folder_sha256(zip(names, hashes, strict=True))


def _states(path: Path) -> dict[str, State]:
    """The states of regular files, by their names in the folder; a path that cannot be read has none."""
    try:
        ours = (path / MANIFEST).is_file()  # others may have any number of files below them
        files = [path] if not path.is_dir() else path.rglob("*") if ours else path.iterdir()
        statuses = ((str(file.relative_to(path)), os.stat(file)) for file in files)
        return {name: State.of(status) for name, status in statuses if stat.S_ISREG(status.st_mode)}
    except (OSError, ValueError):
        return {}
