"""Find settings that differ between the user's two models, from the table: both are built, but not run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wdport.checkpoint import open_checkpoint
from wdport.conversion.prepare import Settings, source_of, what_is_told
from wdport.errors import UsageError
from wdport.families.choice import own_model

if TYPE_CHECKING:
    from wdport.compare.setting import SettingsReport


def told_differently(path: str | Path, settings: Settings, checkpoint: str | Path | None = None) -> SettingsReport:
    """Compare the hyper-parameters of every pair of layers that a table aligns.

    The functions that build the models are the table's, or those of ``settings``; a ``checkpoint`` is used only for the
    ``config.json`` beside it. Raises ``UsageError`` if one of the models is not named, ``MisfitError`` if it
    cannot be built or the table does not fit it.
    """
    own = own_model(path, settings.model, settings.reference, settings.inputs)
    if own is None:
        raise UsageError("--settings", f"{path} is for a model that comes with wdport", "use wdport verify")
    for option, field, known in (("--model", "keras", own.model), ("--reference", "torch", own.reference)):
        if not known:
            raise UsageError("--settings", f"no model is named for `{option}`", f"add `{field}: MODULE:FUNCTION`")
    told, _ = what_is_told(own, settings)
    arguments = {key: told[key] for key in own.table.config if key in told}
    if len(arguments) < len(own.table.config):
        if checkpoint is None:
            fix = "give `--config FILE`, or a checkpoint with a config.json beside it"
            raise UsageError("--settings", "the models need configuration values", fix)
        with open_checkpoint(Path(checkpoint), key=settings.key) as opened:
            arguments = own.arguments(source_of(opened), told)
    return own.settings(arguments)
