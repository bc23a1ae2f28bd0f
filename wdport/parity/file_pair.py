"""Open a checkpoint and its converted file, check that they belong together, and check what the converted file
states about itself.

wdport's writer and reader share one description of the layout, so neither would reveal a fault in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

from wdport.base.errors import MisfitError, UsageError, printable
from wdport.compare.findings import Finding, fact, notice
from wdport.compare.measure import same_bits
from wdport.conversion.load import Converted, open_converted
from wdport.conversion.manifest_schema import contradiction_of
from wdport.conversion.prepare import Prepared, Settings, prepare, source_of, user_configuration
from wdport.conversion.rounding import narrow
from wdport.families.roles import OwnFamily
from wdport.files.manifest_seal import file_sha256, manifest_of
from wdport.files.model_files import digest
from wdport.files.model_target import FOLDER
from wdport.models.interface import STATED, Array, KerasVariable, Resolved, Stated
from wdport.parity.verify_options import Pair
from wdport.recording.errors import MODEL_ERRORS, one_line


def library_variables(converted: Converted) -> tuple[str, Mapping[str, Array]]:
    """The library's name, and every variable by path as the library reads it.

    Keras loads into a model of the family that is never run, so nothing is compiled; the assigned values are kept.
    """
    path = converted.path
    if converted.format in ("safetensors", FOLDER):
        from safetensors.numpy import load_file

        files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        held = {name: array for file in files for name, array in load_file(file).items()}
        return "safetensors", {name: array.astype(np.float32, copy=False) for name, array in held.items()}
    if converted.format == "npz":
        with np.load(path) as arrays:
            return "numpy", {name: arrays[name].astype(np.float32, copy=False) for name in converted.variables}
    import keras

    assigned: dict[str, Array] = {}

    def keep(variable: KerasVariable, value: object) -> object:
        assigned[variable.path] = np.asarray(value)
        return value

    # A model under construction may assign initial values, which the file's follow.
    with converted.family.unfilled(), patch.object(keras.Variable, "assign", keep):
        if converted.format == "keras":
            keras.saving.load_model(converted.path, compile=False)
        else:
            converted.family.build(converted.config).load_weights(converted.path)
    return "Keras", assigned


def misread(converted: Converted, variables: Mapping[str, Array]) -> list[Finding]:
    """Findings on variables whose values, as the library reads them, are not bitwise equal to ``variables``; or that it
    does not read the file."""
    try:
        library, loaded = library_variables(converted)
    except MODEL_ERRORS as error:  # of the constructor of an outside family, for one
        return [fact(f"its own library does not load the file ({one_line(error)})", converted.path.name, "unequal")]
    wrong = [name for name in variables if name not in loaded or not same_bits(loaded[name], variables[name])]
    return [fact(f"{name} is another array as {library} reads the file", name, "unequal") for name in wrong]


@dataclass(frozen=True)
class BothFiles:
    """An open checkpoint and its converted file.

    Attributes:
        pair: their paths and the options.
        own: the user's own model, if it is one.
        target: the function of the user's PyTorch model, ``module:function``; "" if the family's own is the reference.
    """

    pair: Pair
    prepared: Prepared
    converted: Converted
    user_family: OwnFamily | None
    target: str

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of either file; raises :class:`~wdport.base.errors.InputError` if one has been changed since it
        was opened."""
        converted = self.converted.snapshot.sha256
        return {"checkpoint": self.prepared.checkpoint.file_sha256(), "converted": converted}


@contextmanager
def both_files(pair: Pair, user_family: OwnFamily | None) -> Iterator[BothFiles]:
    """Open both files of a ``pair``; ``user_family`` is the user's own model.

    Raises :class:`MisfitError` if they do not belong together, and what :func:`wdport.verify` raises of bad files.
    """
    assert pair.checkpoint is not None
    converted = open_converted(pair.converted, user_family)
    settings = Settings(mapping=pair.mapping, key=pair.key, likely=converted.source_key,
                        known=asdict(converted.config), model=pair.model,
                        reference=pair.reference, inputs=pair.inputs, own=user_family)  # fmt: skip
    with ExitStack() as stack:
        prepared = _prepared(stack, Path(pair.checkpoint), settings, converted)
        if prepared.family.name != converted.family.name:
            what = f"is a {converted.family.name}, the checkpoint a {prepared.family.name}"
            raise MisfitError(converted.path, what, "give the file that this checkpoint was converted to")
        prepared = replace(prepared, stated=_stated(prepared, converted))
        target = pair.reference or (user_family.reference if user_family is not None else None)
        if user_family is not None and not target:
            fix = "add `torch: MODULE:FUNCTION` to the table, or give `--reference`"
            raise UsageError(user_family.table.path, "does not name the PyTorch model to compare with", fix)
        yield BothFiles(pair, prepared, converted, user_family, target or "")


def _prepared(stack: ExitStack, checkpoint: Path, settings: Settings, converted: Converted) -> Prepared:
    """The checkpoint and its plan; if they do not fit and the file was made from another one, the error names that."""
    try:
        return stack.enter_context(prepare(checkpoint, settings))
    except MisfitError as error:
        source = converted.account.source if converted.account else None
        # Only now, since hashing reads the whole checkpoint.
        if source is None or not checkpoint.is_file() or file_sha256(checkpoint) == source.sha256:
            raise
        what = f"was converted from {source.name} (SHA-256 {source.sha256[:16]}), not from {checkpoint.name}"
        raise MisfitError(converted.path, what, "give that checkpoint, or the file that this one became") from error


def _stated(prepared: Prepared, converted: Converted) -> Stated | None:
    """The checkpoint's own configuration, with the values that the conversion was given; ``None`` if the checkpoint has
    none, or the converted file does not state which were given."""
    source = source_of(prepared.checkpoint)
    document = source.document()
    if not document or not converted.origins:
        return None
    stated_names = [name for name, origin in converted.origins.items() if origin in STATED]
    return Stated(document, {name: getattr(converted.config, name) for name in stated_names}, source.beside)


_HOW = "; if it was given at the conversion, also give it to verify"
_UNCHECKED = "the statistics of windows are as the file states; --data FILE --transform NAME compares them"

LONGEST = 80
"""Characters of a value in a finding."""


def provenance(
    converted: Converted, variables: Mapping[str, Array], sha256: str, source_sha256: str | None,
    table_sha256: str | None = None,
) -> list[Finding]:  # fmt: skip
    """Findings on a converted file with the hash ``sha256`` and on its ``variables`` as read.

    ``source_sha256`` is the hash of the checkpoint that it is compared with, if there is one, and ``table_sha256`` that
    of the mapping table.
    """
    account = converted.account
    if account is None:
        return [notice(converted.note)]
    findings = []
    if account.rounded:
        dtypes = ", ".join(sorted({account.dtypes[name] for name in account.rounded}))
        findings.append(notice(f"the weights were rounded to {dtypes}; the reference computes with the rounded ones"))
    for name, array in variables.items():
        # The digest is that of the stored dtype; the array was read as float32.
        if digest(narrow(array, account.dtypes.get(name, "float32"))) != account.digests.get(name):
            findings.append(fact(f"{name} is not what was written: another SHA-256", name, "damaged"))
    beside = manifest_of(converted.path)
    if contradiction := contradiction_of(converted.path, account, sha256):
        findings.append(fact(f"the manifest does not fit: {contradiction}", beside.name, "torn"))
    elif not beside.exists():
        findings.append(notice(f"{beside.name} is missing; the file holds the same", beside.name))
    if source_sha256 is not None and source_sha256 != account.source.sha256:
        findings.append(notice(f"converted from another file than this one: {account.source.name}, by its SHA-256"))
    if table_sha256 is not None and table_sha256 != account.mapping.sha256:
        name = account.mapping.name
        findings.append(notice(f"converted with another mapping table than this one: {name}, by its SHA-256"))
    return findings


def contradictions(
    prepared: Prepared, converted: Converted, user_family: OwnFamily | None, settings: Settings
) -> list[Finding]:
    """Findings on configuration values of the converted file that differ when derived again from the checkpoint and
    the values that the user gave at the conversion, as recorded in the file, or in ``settings``. For ``user_family``,
    a user's model, the configuration is the arguments of its functions."""
    config, flags = user_configuration(prepared.family, settings)
    if user_family is not None:
        return _other_arguments(prepared, converted, user_family, config)
    # What is given now takes precedence over what the file records.
    config = _from(converted, "config") | config
    flags = _from(converted, "flag") | _from(converted, "data") | flags
    try:
        again = prepared.family.resolve(source_of(prepared.checkpoint), config, flags)
    except MisfitError as error:
        return [fact(f"its configuration does not come out again: {error.what}{_HOW}", kind="contradicted")]
    ours, theirs = converted.config.to_dict(), again.config.to_dict()
    stated = [notice(_UNCHECKED)] if settings.units is None and ours.get("window_statistics") else []
    differing = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return stated + [_contradicted(name, _shown(ours.get(name)), _by(again, name)) for name in differing]


def _contradicted(name: str, ours: object, theirs: str) -> Finding:
    return fact(f"{name} is {ours} in the converted file, {theirs}", name, "contradicted")


def _shown(value: object) -> str:
    """A value, of a long one the beginning."""
    return printable(str(value), LONGEST)


def _by(again: Resolved, name: str) -> str:
    """The value as derived now, and its origin."""
    value, origin = _shown(again.config.to_dict().get(name)), again.origins.get(name, "default")
    if origin in ("assumed", "default"):
        return f"which nothing states: {value} is {'assumed' if origin == 'assumed' else 'the default'}{_HOW}"
    return f"{value} by the {'checkpoint' if origin not in STATED else origin}"


def _other_arguments(
    prepared: Prepared, converted: Converted, user_family: OwnFamily, config: Mapping[str, object]
) -> list[Finding]:
    try:
        theirs = user_family.arguments(source_of(prepared.checkpoint), config)
    except MisfitError:  # they came from --config, and nothing else states them
        return []
    ours = converted.config.arguments
    differing = [name for name in theirs if ours.get(name) != theirs[name]]
    return [_contradicted(name, ours.get(name), f"{theirs[name]} by the checkpoint") for name in differing]


def _from(converted: Converted, origin: str) -> dict[str, object]:
    return {name: getattr(converted.config, name) for name, where in converted.origins.items() if where == origin}
