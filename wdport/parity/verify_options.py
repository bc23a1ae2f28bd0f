"""A pair of models to compare and the options: the arguments of `wdport verify`, the pytest plugin and the action.

Importing this module imports neither torch nor keras nor jax.

The options of `wdport verify`, of the pytest plugin and of the action are each declared here and nowhere else; `make
options` writes them into the plugin, the action and the documentation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

from wdport.base.errors import MisfitError, UsageError
from wdport.base.limits import MAX_CASES, MAX_SEED
from wdport.base.options import (
    DATA,
    FORCE,
    INPUTS,
    JSON,
    KEY,
    MAPPING,
    MODEL,
    NORM_STATS,
    SHA256,
    TRANSFORM,
    Argument,
    CommandOnly,
    Elsewhere,
    Option,
    PathText,
    Unrecorded,
    options_of,
    require_bounds,
)
from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.expected_hash import require_sha256
from wdport.conversion.load import open_account, open_converted
from wdport.conversion.optimizer_file import optimizer_path
from wdport.conversion.prepare import Settings, prepare
from wdport.families.registry import own_model
from wdport.families.roles import OwnFamily
from wdport.files.inputs import InputFiles
from wdport.files.outputs import writable
from wdport.files.report_formats import FORMATS
from wdport.parity.recorded_reference import open_recording

REPRO_ARRAYS: Final = "layer.npz"
REPRO_SCRIPT: Final = "repro.py"
REPRO_KINDS: Final = {REPRO_ARRAYS: "layer", REPRO_SCRIPT: "script"}
"""The kind of each file in :data:`wdport.files.outputs.OURS`."""


def require_repro(folder: str | os.PathLike[str] | None) -> None:
    """Refuse a folder in which another file than an older one of these has one of their names."""
    for name, kind in REPRO_KINDS.items():
        if folder is not None and os.path.lexists(path := Path(folder, name)):
            writable(path, force=False, option=None, kind=kind)


NEEDS_MODEL: Final = Unrecorded("needs the PyTorch model to run")
OWN_INPUTS: Final = Unrecorded("a recording holds its own inputs")
CONFIGURES: Final = Unrecorded("a recording does not hold the configuration that these are for")
"""Why a recording excludes options."""


@dataclass(frozen=True)
class PairOptions:
    """What is compared, and on what inputs."""

    converted: Annotated[PathText, Option(
        "The converted file of each checkpoint or recording. [default: the .keras file next to it]",
        files="converted"), Argument(), Elsewhere(each_pair=True)]  # fmt: skip
    checkpoint: Annotated[PathText | None, Option(
        "The PyTorch checkpoint of the port to test.",
        files="checkpoint"), Argument(), Elsewhere(each_pair=True)] = None  # fmt: skip
    mapping: Annotated[PathText | None, MAPPING] = None
    config: Annotated[PathText | None, Option(
        "Training configuration, to compare with the one in the converted file.", files="table"),
        CONFIGURES] = None  # fmt: skip
    values: Annotated[tuple[tuple[str, str], ...], Option(
        "One configuration value, such as num_heads=8; repeatable.",
        "KEY=VALUE", group="model"), CONFIGURES] = ()  # fmt: skip
    norm_stats: Annotated[PathText | None, NORM_STATS, CONFIGURES] = None
    data: Annotated[PathText | None, DATA, CONFIGURES] = None
    transform: Annotated[str | None, TRANSFORM, CONFIGURES] = None
    model: Annotated[str | None, MODEL] = None
    inputs: Annotated[tuple[str, ...], INPUTS] = ()
    key: Annotated[str | None, KEY] = None
    sha256: Annotated[str | None,
        SHA256, Elsewhere("The SHA-256 that the checkpoint must have.", each_pair=True)] = None  # fmt: skip
    full: Annotated[bool, Option(
        "Also compare bfloat16, gradients, training mode, optimizer steps and sampling."),
        NEEDS_MODEL] = False  # fmt: skip
    resume: Annotated[bool, Option(
        "Also compare training steps from the converted optimizer's state.",
        names=("--with-optimizer",), former=("--resume",)), NEEDS_MODEL] = False  # fmt: skip
    train: Annotated[bool, Option(
        "Also compare both models in training mode: gradients, dropout, batch statistics, and trained weights."),
        NEEDS_MODEL] = False  # fmt: skip
    schedule: Annotated[str | None, Option(
        "Class of the checkpoint's learning-rate schedule, for --with-optimizer.",
        "MODULE:CLASS", names=("--schedule-class",), former=("--schedule",))] = None  # fmt: skip
    seed: Annotated[int, Option("Random seed of the inputs.", bounds=(0, MAX_SEED)), OWN_INPUTS] = 0
    cases: Annotated[int, Option("Compare on N additional random inputs.", "N", bounds=(0, MAX_CASES)), OWN_INPUTS] = 0
    fresh: Annotated[bool, Option(
        "Also compare on new inputs and weights, with the port in a separate process. [default with --policy]"),
        NEEDS_MODEL] = False  # fmt: skip
    reference: Annotated[str | None, Option(
        "Your own PyTorch model, instead of the built-in reference.",
        "MODULE:FUNCTION", group="model"), NEEDS_MODEL] = None  # fmt: skip
    against: Annotated[PathText | None, Option(
        "A recording made by `wdport record`, to verify without the checkpoint and without torch.",
        files=(".npz",)), Elsewhere(each_pair=True)] = None  # fmt: skip


@dataclass(frozen=True)
class RunOptions:
    """How the comparison is judged, and what is written; ``json_file`` is "-" for standard output."""

    no_fresh: Annotated[bool, Option(
        "With a policy, skip the comparison on new inputs and weights.", after="fresh")] = False  # fmt: skip
    json_file: Annotated[str | None, JSON, CommandOnly()] = None
    html: Annotated[str | None, Option("Write an HTML report.", files=(".html",)), CommandOnly()] = None
    junit: Annotated[str | None, Option(
        "Write a JUnit report for CI servers.", files=(".xml",)), CommandOnly()] = None  # fmt: skip
    markdown: Annotated[str | None, Option(
        "Write a Markdown summary for CI pages and pull requests.", files=(".md",)), CommandOnly()] = None  # fmt: skip
    policy: Annotated[str | None, Option("File with bounds and waivers, such as parity.toml.", files=(".toml",))] = None
    baseline: Annotated[str | None, Option(
        "File with the errors of an earlier run, such as parity-baseline.json.",
        files=(".json",)), Elsewhere(each_pair=True)] = None  # fmt: skip
    update_baseline: Annotated[bool, Option(
        "Write this run's errors to the baseline.", group="outputs"), CommandOnly()] = False  # fmt: skip
    no_canary: Annotated[bool, Option("With a policy or baseline, skip the known-fault check.")] = False
    repro: Annotated[str | None, Option(
        "Write the first faulty layer with its weights and inputs, and a script that runs it.",
        "DIR", files="folder", group="outputs"), CommandOnly()] = None  # fmt: skip
    force: Annotated[bool, FORCE, CommandOnly()] = False

    @property
    def reports(self) -> dict[str, str | None]:
        """The file of each format of report; None where there is none."""
        files = {name: getattr(self, name) for name in FORMATS if name != "json"}
        return {"json": None if self.json_file == "-" else self.json_file, **files}


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
        unbuilt = None if user_family is None else user_family.described_by({})
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
    return user_family.described_by(account.variables)
