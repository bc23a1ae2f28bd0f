"""Where a run keeps its state, from which it resumes bit for bit: in one file, or as an Orbax checkpoint of which
every process writes its part.

The facts in the file are sealed, and state the SHA-256 of every array, so that changed bytes are found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import Fault
from wdport.data.arrays import opened_npz
from wdport.errors import InputError
from wdport.files.atomic import whole_file
from wdport.files.locked_folder import ANEW, RunFolder
from wdport.files.manifest_seal import sealed, unsealed
from wdport.files.orbax_folder import require_orbax
from wdport.files.outputs import OutputPath
from wdport.model import Array
from wdport.training.placement import Placement

NAME: Final = "state.npz"
FORMAT: Final = 4
WHOLE: Final = ("epoch", "steps")
"""Metrics that are integers."""

_FACTS: Final = "facts"
_ROWS: Final = "rows/0"

Arrays = Mapping[str, Sequence[Array]]
"""Lists of arrays by role: the variables of the network, of the optimizer, and their averages."""


def write_state(output: OutputPath, arrays: Arrays, facts: Mapping[str, Any]) -> None:
    """Write the state; raises :class:`MachineError`."""
    rows = np.array([list(row.values()) for row in facts["rows"]], np.float64)
    header = {**facts, "rows": list(facts["rows"][0]) if len(rows) else []}  # an array, since they may be very many
    flat: dict[str, Any] = {
        f"{role}/{index}": np.asarray(array) for role, several in arrays.items() for index, array in enumerate(several)
    }
    flat[_ROWS] = rows
    text = sealed({"format": FORMAT, "arrays": _described(flat), **header})
    flat[_FACTS] = np.frombuffer(text.encode(), np.uint8)
    with whole_file(output) as file:
        np.savez(file, **flat)


def read_state(folder: Path) -> tuple[dict[str, list[Array]], dict[str, Any]] | None:
    """Read the state of a run, None if it has none; raises :class:`InputError` if the file is damaged."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        with located(path):
            with opened_npz(path) as file:
                facts: dict[str, Any] = unsealed(file[_FACTS].tobytes())
                flat = {name: file[name] for name in file.files if name != _FACTS}
            if facts.pop("format") != FORMAT:
                raise Fault("was written by another release of wdport", "use that release")
            if _described(flat) != facts.pop("arrays"):
                raise Fault("has other arrays than were written", "copy it again")
        names, rows = facts["rows"], flat.pop(_ROWS)
        facts["rows"] = [{name: int(value) if name in WHOLE else value for name, value in zip(names, row, strict=True)}
                         for row in rows.tolist()]  # fmt: skip
    except InputError as error:
        raise InputError(path, error.what, ANEW) from None
    arrays: dict[str, list[Array]] = {}
    # By number: as text, 10 would come before 9.
    for name in sorted(flat, key=lambda name: int(name.rpartition("/")[2])):
        arrays.setdefault(name.rpartition("/")[0], []).append(flat[name])
    return arrays, facts


def _described(flat: Mapping[str, Array]) -> dict[str, list[Any]]:
    """Dtype, SHA-256 and shape of every array."""
    return {name: [array.dtype.str, digest(array), *array.shape] for name, array in flat.items()}


def digest(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()


FOLDER: Final = "state.orbax"


class Saves:
    """The saved states of the run in ``folder``, of which the last one is kept; the first process has it ``held``."""

    def __init__(self, folder: Path, held: RunFolder | None, placement: Placement, orbax: bool = False) -> None:
        self.folder, self.placement, self.orbax, self._held = folder, placement, orbax, held
        self._other = folder / (NAME if orbax else FOLDER)
        self._opened: Any = None
        if orbax:
            require_orbax(folder / FOLDER)

    @property
    def _manager(self) -> Any:
        """Orbax's, made when it is first needed, since it makes the folder."""
        if self._opened is None:
            import orbax.checkpoint as ocp

            # Synchronous: a state counts as saved when write returns.
            options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
            self._opened = ocp.CheckpointManager((self.folder / FOLDER).resolve(), options=options)
        return self._opened

    def exist(self) -> bool:
        if self._other.exists():
            return True
        if self.orbax:
            return (self.folder / FOLDER).is_dir() and self._manager.latest_step() is not None
        return (self.folder / NAME).exists()

    def check(self) -> None:
        """Raise :class:`InputError` if the state was saved otherwise, or is damaged; Orbax opens its folder again."""
        self._opened = None
        if self._other.exists():
            keeps = "keeps" if self.orbax else "does not keep"
            what = f"has a state in {self._other.name}, and the run {keeps} it with Orbax"
            raise InputError(self.folder, what, "start the run as before, or again with `--force`")
        if not self.orbax:
            read_state(self.folder)

    def write(self, state: Any, facts: Mapping[str, Any]) -> None:
        """Save placed arrays and JSON values, whole or not at all; all processes must call it together.

        Raises :class:`MachineError`.
        """
        if self.orbax:
            import orbax.checkpoint as ocp

            args = ocp.args.Composite(state=ocp.args.StandardSave(_named(state)), facts=ocp.args.JsonSave(dict(facts)))
            self._manager.save(facts["steps"], args=args, force=True)
            return
        # In all processes, although only the first writes: collecting the parts is a collective operation.
        full_state = self.placement.whole(state)
        if self._held is not None:
            write_state(self._held.output(NAME), full_state, facts)

    def read(self, like: Any) -> tuple[Any, dict[str, Any]] | None:
        """The last state and its facts; None if there is none.

        Args:
            like: shapes, dtypes and shardings of the arrays.

        Raises :class:`InputError` if it is damaged.
        """
        if not self.orbax:
            return read_state(self.folder)
        step = self._manager.latest_step()
        if step is None:
            return None
        import orbax.checkpoint as ocp

        try:
            facts = dict(self._manager.restore(step, args=ocp.args.Composite(facts=ocp.args.JsonRestore())).facts)
            args = ocp.args.Composite(state=ocp.args.StandardRestore(_named(like)))
            restored = self._manager.restore(step, args=args).state
        except (ValueError, KeyError, OSError) as error:
            what = f"Orbax cannot read it ({str(error).splitlines()[0]})"
            raise InputError(self.folder / FOLDER, what, "start the run as before, or give another folder") from None
        return {role: [restored[role][str(index)] for index in range(len(several))] for role, several in like.items()
                if several}, facts  # fmt: skip


def _named(tree: Any) -> Any:
    """Lists as dictionaries by number; empty ones are left out, as Orbax does not store them."""
    return {role: {str(index): leaf for index, leaf in enumerate(several)} for role, several in tree.items() if several}
