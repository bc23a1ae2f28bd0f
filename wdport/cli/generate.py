"""`wdport generate`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wdport.checkpoint.expected_hash import require_sha256
from wdport.cli.click_options import verb
from wdport.cli.documents import require_document
from wdport.cli.generate_request import FORMATS, GenerateRequest
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.prompts import read_prompts
from wdport.errors import UsageError
from wdport.families.roles import Completing
from wdport.files.inputs import InputFiles
from wdport.files.model_target import file_target
from wdport.files.outputs import require_apart

if TYPE_CHECKING:  # imports numpy
    from wdport.conversion.load import Converted


@verb("generate", GenerateRequest)
def command(request: GenerateRequest) -> int:
    """Fill gaps in texts, or continue them, with a converted MODEL, a masked language model.

    In each step, the network predicts every missing token of a block, and the most probable predictions are kept.
    """
    from wdport.files.animation import frames_target

    force, tokenizer, file = request.force, request.tokenizer, request.text_file or request.prompt_ids
    inputs = InputFiles(model=request.model, prompts=file, tokenizer=tokenizer).with_manifests("model")
    prompts = read_prompts(request.texts, request.text_file, request.prompt_ids)
    inputs.check(partial(require_sha256, request.model, request.sha256))
    converted = _opened(request.model)
    target = file_target(Path(request.output), FORMATS, inputs, force) if request.output else None
    moving = frames_target(Path(request.animate), force, inputs) if request.animate else None
    named = {option: output.path for option, output in (("-o", target), ("--animate", moving)) if output}
    require_apart(named.items(), {})
    document = require_document(request.json_file, inputs, named, force)
    require_jax()
    start_jax(request.dtype)
    from wdport.cli.generate_run import run

    run(request, inputs, prompts, converted, target, moving, document)
    return 0


def _opened(model: str) -> Converted:
    """Open a converted language model; raises :class:`UsageError` for other models."""
    from wdport.conversion.load import open_converted

    converted = open_converted(model)
    if not isinstance(converted.family, Completing):
        what = f"a {converted.family.name} model generates no text"
        raise UsageError(
            converted.path, what, "give a converted masked language model; wdport.load_model runs this one"
        )
    return converted
