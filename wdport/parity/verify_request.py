"""A pair of models to compare and the options: the arguments of `wdport verify`, the pytest plugin and the action.

Importing this module imports neither torch nor keras nor jax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.expected_hash import require_sha256
from wdport.conversion.load import open_account, open_converted
from wdport.conversion.optimizer_file import optimizer_path
from wdport.conversion.prepare import Settings, prepare
from wdport.errors import MisfitError, UsageError
from wdport.families.registry import own_model
from wdport.families.roles import OwnFamily
from wdport.files.inputs import InputFiles
from wdport.mapping.axes import Shape
from wdport.options import PathText, Unrecorded, options_of, require_bounds
from wdport.parity.recording import open_recording
from wdport.parity.verify_options import CONFIGURES, PairOptions


@dataclass(frozen=True)
class Pair(PairOptions):
    """A converted file and its reference: the ``checkpoint``, or a recording of its model in ``against``.

    The other fields are arguments of :func:`wdport.verify`; ``values`` are its single values as pairs, and ``sha256``
    is the expected hash of the checkpoint, or of the converted file if there is no checkpoint. ``resume`` compares
    training steps from the optimizer's file next to the converted one, and ``schedule`` names the class of its
    schedule. ``seed`` is that of the inputs, and ``cases`` the number of additional random ones. ``fresh`` runs the
    port alone in a process.
    """

    def require_consistent(self) -> None:
        """Raise :class:`UsageError` if a field is out of its bounds, or fields exclude each other."""
        require_bounds(self)
        if self.schedule and not self.resume:
            raise UsageError("--schedule-class", "is for `--with-optimizer`", "add `--with-optimizer`")
        if self.against is None:
            return
        if self.checkpoint is not None:
            raise UsageError("--against", "the recording replaces CHECKPOINT", "give only CONVERTED")
        excluded = [(option, reason) for option in options_of(Pair).values() if (reason := option.marker(Unrecorded))]
        for option, reason in sorted(excluded, key=lambda pair: pair[1] == CONFIGURES):
            if not getattr(self, option.name):
                continue
            if reason != CONFIGURES:
                raise UsageError(option.flags[0], reason, "leave it out, or leave out `--against`")
            *first, last = [f"`{other.flags[0]}`" for other, why in excluded if why == CONFIGURES]
            raise UsageError("--against", CONFIGURES, f"leave out {', '.join(first)} and {last}")

    @property
    def optimizer(self) -> Path | None:
        """The optimizer's file next to the converted one, if training steps are compared."""
        return optimizer_path(Path(self.converted)) if self.resume else None

    @property
    def files(self) -> dict[str, Path]:
        """The input files, by role."""
        files = {field.name: getattr(self, field.name) for field in options_of(Pair).values() if field.option.files}
        named = InputFiles(**{"checkpoint": self.checkpoint, **files, "resume": self.optimizer})
        return {**named, **_module_files(self.reference, "reference"), **_module_files(self.model, "model"),
                **_module_files(self.schedule, "schedule")}  # fmt: skip

    @property
    def own(self) -> OwnFamily | None:
        """The user's own model, if the mapping table describes one."""
        return own_model(self.mapping, self.model, self.reference, self.inputs)

    def look(self) -> Mapping[str, Path]:
        """Read the small parts of every file, so that a wrong one is refused before torch, keras and jax are imported.

        Returns the files of the checkpoint by role; empty for a recording. Raises :class:`WdportError`.
        """
        # First: nothing in a file is parsed that is not the expected one.
        require_sha256(self.checkpoint or self.converted, self.sha256)
        user_family = self.own
        # A user's own model is not built here: its code may print, and jax is not set up yet.
        unbuilt = None if user_family is None else cast(OwnFamily, ManifestFamily(user_family, {}))
        opened = open_converted(self.converted, described(self.converted, user_family) if self.fresh else unbuilt)
        if self.checkpoint is None:
            with open_recording(Path(str(self.against))):
                return {}
        if user_family is not None:  # planning would build the model
            with open_checkpoint(Path(self.checkpoint), key=self.key, likely=opened.source_key) as checkpoint:
                return checkpoint.files
        # What the checkpoint does not state, the converted file does.
        configuration = None if self.config else asdict(opened.config)
        settings = Settings(self.config, dict(self.values), mapping=self.mapping, key=self.key,
                            likely=opened.source_key, known=configuration)  # fmt: skip
        with prepare(self.checkpoint, settings) as prepared:
            return prepared.checkpoint.files


def is_fresh(fresh: bool, no_fresh: bool, policy: PathText | None, against: PathText | None) -> bool:
    """Whether a comparison includes fresh inputs: by default under a policy, if the PyTorch model can run.

    Raises :class:`UsageError` if both options are given.
    """
    if fresh and no_fresh:
        raise UsageError("--no-fresh", "`--fresh` is given as well", "give one of them")
    return fresh or (policy is not None and against is None and not no_fresh)


def _module_files(target: str | None, what: str) -> dict[str, Path]:
    """Possible files of the module of MODULE:FUNCTION, in the folder that is searched first."""
    stem = Path(*(target or "").partition(":")[0].split("."))
    return {what: stem.with_suffix(".py"), f"the {what}'s package": stem / "__init__.py"} if stem.name else {}


class ManifestFamily:
    """The user's own model as its converted file describes it; everything else is that of ``own``.

    The functions that build its Keras model are never called.
    """

    def __init__(self, user_family: OwnFamily, variables: Mapping[str, Shape]) -> None:
        self._user_family, self._variables = user_family, variables
        user_family.assume_inputs(())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._user_family, name)

    def variables(self, config: object) -> Mapping[str, Shape]:
        """The variables of the manifest."""
        return self._variables

    outline = variables

    def hint(self, config: object) -> str:
        """No reason why the table does not fit: finding one builds the model."""
        return ""

    def require_saved(self, *_: object) -> None:
        """Nothing: the process of the port checks that its function builds the model of the file."""

    def build(self, *_: object) -> None:
        """Refuse."""
        raise AssertionError("the port is not built in this process")

    save = read = settings = build


def described(path: PathText, user_family: OwnFamily | None) -> OwnFamily | None:
    """``user_family``, the user's own model, as the manifest of a converted file describes it.

    Raises :class:`WdportError`.
    """
    if user_family is None:
        return None
    account, _ = open_account(Path(path))
    if account is None:
        what = "has no manifest, since Keras saved it, so a fresh comparison cannot determine its variables"
        raise MisfitError(Path(path), what, "convert the checkpoint again, or leave out `--fresh` (--no-fresh)")
    return cast(OwnFamily, ManifestFamily(user_family, account.variables))
