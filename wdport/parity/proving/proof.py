"""Prove a table that was found, or a port that was written: convert random weights, and verify the result."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from wdport.base.errors import WdportError
from wdport.compare.activities import Say
from wdport.files.atomic import scratch_folder
from wdport.parity.proving.suggest import Models, Suggestion, loads_itself
from wdport.porting.torch_run import SEED, build_as_stored, fill

if TYPE_CHECKING:
    from wdport.parity.verdict import Verdict

Verify = Callable[[Path, Path, "Path | None", "Say | None"], "Verdict"]
"""Runs verify on a table, a checkpoint and, if there is one, a configuration; reports its steps."""


def verify_table(
    table: Path, weights: Path, config: Path | None, say: Say | None = None, train: bool = False,
    gradients: bool = False,
) -> Verdict:  # fmt: skip
    """Convert into a temporary file, and verify that; with ``gradients``, also compare them in evaluation mode."""
    from wdport.conversion.convert import convert
    from wdport.parity.run_gates import Setup
    from wdport.parity.verify import compare_files
    from wdport.parity.verify_options import Pair

    with scratch_folder() as folder:
        converted = Path(folder, "converted.keras")
        convert(weights, converted, mapping=table, config=config)
        pair = Pair(converted, weights, mapping=table, train=train)
        return compare_files(pair, say, setup=Setup(gradients=gradients))


def prove(
    suggestion: Suggestion, checkpoint: str | None = None, say: Say | None = None, verify: Verify = verify_table
) -> None:
    """Run ``verify`` on the table with random float32 weights of another seed, or with a checkpoint's; sets
    ``verdict``, or ``failure`` if it could not run."""
    if suggestion.stop is not None:
        return
    if not suggestion.parts:
        suggestion.failure = "the model has no weights, and verify compares models by a checkpoint"
        return
    suggestion.verdict, suggestion.failure = None, ""  # those of another proof
    with scratch_folder() as folder:
        table = Path(folder, "suggested.yaml")
        table.write_text(suggestion.text(), encoding="utf-8")
        path = checkpoint or (suggestion.models.checkpoint if loads_itself(suggestion.models) else None)
        weights = Path(path) if path else random_checkpoint(suggestion.models, Path(folder, "random.pt"))
        config = None
        if suggestion.models.arguments:
            import yaml

            config = Path(folder, "config.yaml")
            config.write_text(yaml.safe_dump(dict(suggestion.models.arguments)), encoding="utf-8")
        try:
            suggestion.verdict = verify(table, weights, config, say)
            suggestion.notes += slow_proof(suggestion)
        except WdportError as error:
            # The temporary folder is gone when the reader sees this.
            suggestion.failure = " ".join(error.command_line.replace(str(folder), "").split())


LONG = 60.0
"""Seconds from which a proof takes long."""

SMALL = 64
"""Size of an image with which most networks run fast."""

_IMAGE = re.compile(r"(\w+: b [^\s,]+)((?: [^\s,]+){2,3})(?=$|,| ->)")
"""An input with a batch, channels, and two or three further axes."""

_SIZE = re.compile(r"(\d+)(?:\.\.(\d+))?")


def slow_proof(suggestion: Suggestion) -> tuple[str, ...]:
    """A note on smaller images, with which a proof that took long takes less time."""
    verdict, stated = suggestion.verdict, suggestion.models.inputs
    smaller = [_IMAGE.sub(lambda image: image[1] + _SIZE.sub(_small, image[2]), text) for text in stated]
    if verdict is None or verdict.seconds < LONG or smaller == list(stated):
        return ()
    words = " ".join(f"--input '{text}'" for text in smaller)
    return (f"the proof took {verdict.seconds:.0f} s; if both models take smaller inputs, it takes less time with "
            f"{words}",)  # fmt: skip


def _small(size: re.Match[str]) -> str:
    """A size, or a range that is as long, from :data:`SMALL` on; unchanged if it begins there or before."""
    low, high = int(size[1]), int(size[2] or size[1])
    if low <= SMALL:
        return size[0]
    return f"{SMALL}..{SMALL + high - low}" if size[2] else str(SMALL)


def random_checkpoint(models: Models, path: Path) -> Path:
    """Write a checkpoint of the PyTorch model with random weights; returns its path."""
    import torch

    module = build_as_stored(models.reference, models.arguments, models.checkpoint)
    # As real checkpoints are; convert refuses float64 values that float32 cannot hold.
    dtypes = {name: torch.float32 if tensor.dtype is torch.float64 else tensor.dtype
              for name, tensor in module.state_dict().items()}  # fmt: skip
    # Another seed than the search's: a table that fits its values by chance fails.
    fill(module.double(), SEED + 1)
    torch.save({name: tensor.to(dtypes[name]) for name, tensor in module.state_dict().items()}, path)
    return path
