"""Open a checkpoint and its converted file, and check that they belong together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from wdport.conversion.load import Converted, open_converted
from wdport.conversion.prepare import Prepared, Settings, prepare, source_of
from wdport.errors import MisfitError, UsageError
from wdport.families.roles import OwnFamily
from wdport.files.manifests import file_sha256
from wdport.model import STATED, Stated
from wdport.parity.pair import Pair


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
        """The SHA-256 of either file; raises :class:`~wdport.errors.InputError` if one has been changed since it was
        opened."""
        return {
            "checkpoint": self.prepared.checkpoint.file_sha256(),
            "converted": self.converted.snapshot.sha256,
        }


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
    """The checkpoint and its plan; if they do not fit and the file was made from another checkpoint, says so."""
    try:
        return stack.enter_context(prepare(checkpoint, settings))
    except MisfitError as error:
        source = converted.account.source if converted.account else None
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
