"""The user's own model as its converted file describes it, so that both files open without running its Keras model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from wdport.conversion.load import open_account
from wdport.errors import MisfitError
from wdport.families.roles import OwnFamily
from wdport.mapping.axes import Shape
from wdport.options import PathText


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
