"""`wdport.to_torch`: write a converted model as the PyTorch tensors that it was converted from."""

from __future__ import annotations

from pathlib import Path

from wdport.conversion.back import Restored, restored
from wdport.conversion.load import Converted, open_converted, sound_variables
from wdport.conversion.optimiser import training_file
from wdport.conversion.optimiser_file import read_optimiser, require_weights
from wdport.errors import MisfitError, UsageError, require_paths
from wdport.exporting.torch_file import torch_target, write_tensors, write_training
from wdport.families.choice import own_model
from wdport.files.inputs import InputFiles
from wdport.files.target import Target, stem_of
from wdport.mapping.table import load_table
from wdport.options import PathText


def to_torch(
    converted: PathText,
    output: PathText | None = None,
    *,
    like: PathText | None = None,
    key: str | None = None,
    optimizer: PathText | None = None,
    mapping: PathText | None = None,
    model: str | None = None,
    force: bool = False,
) -> Restored:
    """Write a converted file's weights under the names, shapes and dtypes of its PyTorch checkpoint.

    Args:
        converted: a file that :func:`wdport.convert` wrote, or one that Keras saved after more training, which needs
            ``like``.
        output: ``NAME.safetensors``, or ``NAME.pt``, which needs torch; by default next to ``converted``.
        like: the checkpoint, or another of the same model, whose tables are copied in place of recomputed ones.
        key: the entry of ``like`` that holds the weights.
        optimizer: the model's ``.optimizer.safetensors``; the output is then a training program's checkpoint, ``.pt``.
        mapping: the table of a user's own model.
        model: ``module:function`` of a user's own Keras model, if the table does not name it.
        force: replace an existing file.

    Returns:
        The tensors by name, and which of them were recomputed or left out.

    Raises:
        InputError: a file cannot be read.
        MisfitError: the file does not describe its checkpoint, or ``like`` or ``optimizer`` belong to another model.
        UsageError: the output exists or is one of the inputs.
        MachineError: writing fails, or torch is not installed.
    """
    require_paths("output", "like", "optimizer", "mapping", converted=converted, output=output, like=like,
                  optimizer=optimizer, mapping=mapping)  # fmt: skip
    inputs = InputFiles(model=converted, mapping=mapping, like=like, optimizer=optimizer).with_manifests("model")
    opened = open_converted(inputs["model"], own_model(inputs.get("mapping"), model, None, ()))
    target = torch_output(opened, output, inputs, force)
    table = load_table(inputs["mapping"]) if mapping else None
    back = restored(opened, table, inputs.get("like"), key)
    write_restored(target, opened, back, inputs.get("optimizer"))
    return back


def torch_output(converted: Converted, output: PathText | None, inputs: InputFiles, force: bool) -> Target:
    """The file to write, by default next to the model; raises as :func:`to_torch` does."""
    optimizer = "optimizer" in inputs
    default = f"{stem_of(converted.path)}.torch.{'pt' if optimizer else 'safetensors'}"
    path = Path(output) if output else converted.path.with_name(default)
    if optimizer and path.suffix == ".safetensors":
        raise UsageError(path, "cannot hold the state of an optimizer", "end the name in .pt")
    return torch_target(path, inputs, force)


def write_restored(target: Target, converted: Converted, back: Restored, optimizer: Path | None) -> int:
    """Write the tensors, or, with an optimizer's file, a training program's checkpoint, and return the size in bytes;
    raises as :func:`to_torch` does."""
    if optimizer is None:
        return write_tensors(target, back.tensors)
    state, belongs = read_optimiser(optimizer)
    if belongs.family != converted.family.name or set(state.members) - set(converted.variables) or back.plan is None:
        raise MisfitError(optimizer, f"is not of the model in {converted.path.name}", "give its own optimizer")
    require_weights(optimizer, state, belongs, sound_variables(converted))
    return write_training(target, training_file(state, back.plan, back.tensors, back.key))
