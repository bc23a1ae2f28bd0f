"""Find settings that differ between the user's two models, from the table: both are built, but not run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wdport.checkpoint import open_checkpoint
from wdport.conversion.prepare import Settings, source_of, user_configuration
from wdport.errors import UsageError
from wdport.families.choice import own_model

if TYPE_CHECKING:
    from wdport.compare.setting import SettingsReport


def settings_report(path: str | Path, settings: Settings, checkpoint: str | Path | None = None) -> SettingsReport:
    """Compare the hyper-parameters of every pair of layers that a table aligns.

    The functions that build the models are the table's, or those of ``settings``; a ``checkpoint`` is used only for the
    ``config.json`` next to it. Raises ``UsageError`` if one of the models is not named, ``MisfitError`` if it
    cannot be built or the table does not fit it.
    """
    family = own_model(path, settings.model, settings.reference, settings.inputs)
    if family is None:
        raise UsageError("--settings", f"{path} is for a model that comes with wdport", "use wdport verify")
    for option, field, target in (("--model", "keras", family.model), ("--reference", "torch", family.reference)):
        if not target:
            raise UsageError("--settings", f"no model is named for `{option}`", f"add `{field}: MODULE:FUNCTION`")
    stated, _ = user_configuration(family, settings)
    arguments = {key: stated[key] for key in family.table.config if key in stated}
    if len(arguments) < len(family.table.config):
        if checkpoint is None:
            fix = "give `--config FILE`, or a checkpoint with a config.json beside it"
            raise UsageError("--settings", "the models need configuration values", fix)
        with open_checkpoint(Path(checkpoint), key=settings.key) as opened:
            arguments = family.arguments(source_of(opened), stated)
    return family.settings(arguments)
