"""Open both files of a comparison without running the user's Keras model: its variables are those of the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from wdport.conversion.load import Converted, open_account, open_converted
from wdport.conversion.prepare import PathText, Prepared, Settings, prepare
from wdport.errors import MisfitError, UsageError
from wdport.families.choice import own_model
from wdport.families.roles import OwnFamily
from wdport.mapping.axes import Shape


class ManifestFamily:
    """The user's own model as its converted file describes it; everything else is that of ``own``.

    The functions that build its Keras model are never called.
    """

    def __init__(self, own: OwnFamily, variables: Mapping[str, Shape]) -> None:
        self._own, self._variables = own, variables
        own.assume_inputs(())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

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


def described(path: PathText, own: OwnFamily | None) -> OwnFamily | None:
    """The user's own model ``own``, described by the manifest of a converted file; raises :class:`WdportError`."""
    if own is None:
        return None
    account, _ = open_account(Path(path))
    if account is None:
        what = "has no manifest, since Keras saved it, so a fresh comparison cannot tell its variables"
        raise MisfitError(Path(path), what, "convert the checkpoint again, or leave out --fresh (--no-fresh)")
    return cast(OwnFamily, ManifestFamily(own, account.variables))


@dataclass(frozen=True)
class BothFiles:
    """A checkpoint and its converted file, open; ``own`` is the user's own model, if it is one, and ``target`` the
    function of the user's PyTorch model, if any."""

    prepared: Prepared
    converted: Converted
    own: OwnFamily | None
    target: str


@contextmanager
def both_files(
    checkpoint: PathText,
    converted: PathText,
    mapping: PathText | None = None,
    key: str | None = None,
    reference: str | None = None,
    model: str | None = None,
    inputs: Sequence[str] = (),
    **_: object,
) -> Iterator[BothFiles]:
    """Open both files; arguments as those of :func:`wdport.verify`, whose errors it raises."""
    own = described(converted, own_model(mapping, model, reference, inputs))
    opened = open_converted(converted, own)
    settings = Settings(mapping=mapping, key=key, known=asdict(opened.config), model=model, reference=reference,
                        inputs=inputs, own=own)  # fmt: skip
    with prepare(checkpoint, settings) as prepared:
        target = reference or (own.reference if own is not None else None)
        if own is not None and not target:
            fix = "add `torch: MODULE:FUNCTION` to the table, or give --reference"
            raise UsageError(own.table.path, "does not name the PyTorch model to compare with", fix)
        yield BothFiles(prepared, opened, own, target or "")
