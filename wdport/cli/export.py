"""`wdport export`. Files are checked before jax is imported, so that errors are instant."""

from __future__ import annotations

from pathlib import Path

from wdport.cli.click_options import verb
from wdport.cli.documents import require_document
from wdport.cli.export_request import ExportRequest
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.model_inputs import model_inputs, not_sampled, open_own
from wdport.cli.verb import given_options
from wdport.errors import UsageError, printable
from wdport.files.inputs import InputFiles

OTHERS = ("what", "platforms", "batch", "sampler", "steps", "eta", "dtype", "precision", "sizes",
          "inputs")  # fmt: skip
"""Options of programs, which do not apply to a file of tensors."""


@verb("export", ExportRequest)
def command(request: ExportRequest) -> int:
    """Export a converted MODEL as StableHLO with its weights, to run with only jax, or as PyTorch tensors.

    Copy wdport/exporting/loader.py to the machine that runs StableHLO; the loader needs jax and, to read the file,
    flatbuffers.
    """
    from wdport.exporting.artifact import export_target
    from wdport.files.model_target import stem_of

    model, output, what = request.model, request.output, request.what
    read = model_inputs(model, request.sha256, mapping=request.mapping, like=request.like, optimizer=request.optimizer)
    if request.to == "torch":
        return _to_torch(request, read)
    for option, value in (("--like", request.like), ("--optimizer-file", request.optimizer), ("--key", request.key)):
        if value:
            raise UsageError(option, "requires --to torch", "leave it out, or add --to torch")
    converted = open_own(model, request.mapping, request.function, request.inputs)
    why = not_sampled(converted)
    what = what or ("network" if why else "denoiser")
    if what != "network" and why:
        raise UsageError(converted.path, why[0], f"{why[1]}; --what network exports this one")
    _require_fitting(what, request)
    sizes = _sizes(request.sizes)
    path = Path(output) if output else converted.path.with_name(f"{stem_of(converted.path)}.stablehlo")
    target = export_target(path, read, request.force)
    document = require_document(request.json_file, read, {"-o": target.path}, request.force)

    require_jax()
    start_jax()
    from wdport.cli.export_program import export_program

    return export_program(request, what, converted, target, document, sizes)


def _to_torch(request: ExportRequest, inputs: InputFiles) -> int:
    options = given_options()
    for option in (options[name] for name in OTHERS if name in options):
        raise UsageError(option, "requires --to stablehlo; --to torch writes tensors", "leave it out")
    from wdport.cli.export_torch import export_torch

    return export_torch(request, inputs)


def _require_fitting(what: str, request: ExportRequest) -> None:
    """Raise :class:`UsageError` for options of another kind of export."""
    options = {"--sampler": request.sampler, "--steps": request.steps is not None, "--eta": request.eta}
    if what != "sampler" and (option := next((name for name, value in options.items() if value), "")):
        raise UsageError(option, "requires --what sampler", "leave it out, or add --what sampler")
    if what != "network" and (request.sizes or request.inputs):
        raise UsageError("--size" if request.sizes else "--input", "requires --what network", "leave it out, or add it")


def _sizes(pairs: tuple[str, ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name or name in sizes or not (value.isascii() and value.isdecimal() and len(value) < 10):
            raise UsageError("--size", f"{printable(pair, 40)!r} is not NAME=N", "write for example --size n=512, once")
        sizes[name] = int(value)
    return sizes
