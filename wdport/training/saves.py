"""Where a run keeps its state: in one file, or as an Orbax checkpoint of which every process writes its part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from wdport.errors import InputError
from wdport.files.orbax_folder import require_orbax
from wdport.files.run_folder import RunFolder
from wdport.training.placement import Placement
from wdport.training.state_file import NAME, read_state, write_state

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
        """Whether a state was saved."""
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
