"""The fields of a mapping table of format 2, and of each of its rows.

The readers take the names that they know from here, and ``tests/schemas`` makes the published schema of it.
"""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from msgspec import Meta

from wdport.base.shared_types import Positive, Text, about
from wdport.mapping.axes import FillValue

_INDEX = "<[a-z_]+(?:[+-][0-9]{1,9})?>"
_WHOLE = rf"(?![\s\S]*>[0-9]*<)(?:[^<>*?]|{_INDEX})"

Name = Annotated[str, Meta(extra_json_schema={
    "pattern": rf"^(?!\s)(?![\s\S]*<([a-z_]+)(?:[+-][0-9]{{1,9}})?>[\s\S]*<\1[+>-]){_WHOLE}+(?<!\s)$",
    "examples": ["blocks.<block>.mlp.0"],
})]  # fmt: skip
"""A name that is matched whole; ``<index>`` stands for one integer. It is in unions with a list, where
``Meta(pattern=...)`` makes msgspec 0.22 corrupt memory."""

Within = Annotated[str, Meta(pattern=rf"^(?=[\s\S]*\S){_WHOLE}+$")]
"""A suffix of the row's name."""

Prefix = Annotated[str, Meta(pattern=rf"^(?!\s){_WHOLE}+$", examples=["encoder.<level>"])]
"""A prefix of other names."""

Axes = Annotated[str, Meta(pattern=r"^[^>]*[^>-]\s*->\s*[^>]+$", examples=["b c h w -> b h w c", "out in -> in out"])]
"""Axes on both sides of an arrow."""

Names = Annotated[list[Name], Meta(min_length=1)]
Sizes = Annotated[dict[str, Positive], Meta(min_length=1)]


class LayerRow(TypedDict, total=False):
    """A layer: a module of the PyTorch model and the layer of the Keras model that computes the same
    results."""

    torch: Required[Annotated[Name, about(
        "Path of the PyTorch module, with its parts joined by `.`; in a section, without the section's `torch`. A "
        "single `.` is the section's prefix itself.")]]  # fmt: skip
    keras: Required[Annotated[Name, about(
        "Path of the Keras layer, with its parts joined by `/`; in a section, without the section's `keras`. It must "
        "have the same indices as `torch`.")]]  # fmt: skip
    kind: Annotated[Text, about(
        "Layer kind. It determines the layer's tensors, their rules, the layout of its output and the settings that "
        "are compared. Without a kind, only outputs are compared.")]  # fmt: skip
    names: Annotated[dict[str, Within], Meta(min_length=1), about(
        "Last parts of the PyTorch tensors' names, by the kind's names for the tensors, where the two differ: `{query: "
        "to_q}`.")]  # fmt: skip
    formerly: Annotated[dict[str, Within], Meta(min_length=1), about(
        "Former names of submodules or tensors, by the kind's names for them: `{out: proj_attn}`, `{weight: gamma, "
        "bias: beta}`. Tensors with a former name are read under the current name.")]  # fmt: skip
    flatten: Annotated[Axes, about(
        "Order of the axes that were flattened before the layer, in PyTorch and in Keras: `c h w -> h w "
        "c`.")]  # fmt: skip
    sizes: Annotated[Sizes, about(
        "Sizes of axes that no shape determines, by their names in `flatten` or `axes`.")]  # fmt: skip
    axes: Annotated[Axes, about(
        "Layout of the output, in PyTorch and in Keras, if it differs from the kind's: `b c h w -> b h w "
        "c`.")]  # fmt: skip
    then: Annotated[Text, about(
        "Activation that follows the PyTorch module and is part of the Keras layer.")]  # fmt: skip
    up_to: Annotated[Literal["shift"], about(
        "`shift`: outputs may differ by a shift that is the same for every token.")]  # fmt: skip
    optional: Annotated[bool, about("Whether the row may match nothing.")]
    when: Annotated[Text, about(
        "Feature without which the row does not apply. Specify it for the row or for its section.")]  # fmt: skip


class TensorRow(TypedDict, total=False):
    """One or more tensors that belong to no layer kind, and what is done with them. A row has ``keras`` and
    ``rule``, or ``check``, or ``drop``; ``check`` may also be added to ``keras`` and ``rule``."""

    torch: Required[Annotated[Name | Names, about(
        "Name of the PyTorch tensor, or the names of several that are combined.")]]  # fmt: skip
    keras: Annotated[Name | Names, about(
        "Path of the Keras variable that the tensor fills, or the paths of several. They must have the same indices as "
        "`torch`.")]  # fmt: skip
    rule: Annotated[Text, about(
        "How the axes are rearranged: the name of a rule, or the rule itself, as in `out in -> in out`.")]  # fmt: skip
    combine: Annotated[Text, about(
        "Arithmetic that combines several tensors before the rule is applied; `weight_norm` takes a magnitude and a "
        "direction.")]  # fmt: skip
    sizes: Annotated[Sizes, about(
        "Sizes of axes that no shape determines, by their names in the rule.")]  # fmt: skip
    check: Annotated[Name, about("Constant of the model family that the tensor must equal.")]
    drop: Annotated[Text, about("Reason for leaving the tensor out.")]
    digest: Annotated[Text, about(
        "First 16 digits of the SHA-256 of the whole numbers that a dropped tensor must have, each as 8 bytes with the "
        "lowest first.")]  # fmt: skip
    optional: Annotated[bool, about("Whether the row may match nothing.")]
    when: Annotated[Text, about(
        "Feature without which the row does not apply. Specify it for the row or for its section.")]  # fmt: skip


class TieRow(TypedDict, total=False):
    """A tensor that may be absent; if it is present, it must equal another tensor bit for bit, and it fills no
    variable."""

    torch: Required[Annotated[Name, about("Name of the tensor.")]]
    same_as: Required[Annotated[Name, about("Name of the tensor that it must equal, with the same indices.")]]
    when: Annotated[Text, about(
        "Feature without which the row does not apply. Specify it for the row or for its section.")]  # fmt: skip


class FillRow(TypedDict, total=False):
    """A variable that is filled with a constant, since the PyTorch model has no tensor for it, as for the bias of a
    convolution before a norm."""

    keras: Required[Annotated[Name, about(
        "Path of the Keras variable, or a pattern that matches several; in a section, without the section's "
        "`keras`.")]]  # fmt: skip
    fill: Required[Annotated[FillValue, about("What every value of the variable is.")]]
    when: Annotated[Text, about(
        "Feature without which the row does not apply. Specify it for the row or for its section.")]  # fmt: skip


class Rows(TypedDict, total=False):
    """Rows of a table or of one of its sections."""

    layers: Annotated[list[LayerRow], Meta(min_length=1), about("Rows for layers.")]
    tensors: Annotated[list[TensorRow], Meta(min_length=1), about(
        "Rows for tensors that belong to no layer kind.")]  # fmt: skip
    tied: Annotated[list[TieRow], Meta(min_length=1), about("Rows for tensors that equal another tensor.")]
    filled: Annotated[list[FillRow], Meta(min_length=1), about(
        "Rows for variables that no tensor fills.")]  # fmt: skip


class SectionForm(Rows, total=False):
    """Rows with a common prefix and a common feature."""

    torch: Annotated[Prefix, about("Prefix of every PyTorch name of the section, without the trailing `.`.")]
    keras: Annotated[Prefix, about("Prefix of every Keras path of the section, without the trailing `/`.")]
    when: Annotated[Text, about("Feature without which no row of the section applies.")]


class TableForm(Rows, total=False):
    """A mapping table of format 2: which layers of a PyTorch model and of its Keras port compute the same
    results."""

    format: Required[Annotated[Literal[2], about("Version number of the format.")]]
    family: Annotated[Text, about("Model family; if absent, `custom`, the family of your own models.")]
    variant: Annotated[Text, about("Name of the key layout within the family.")]
    signature: Annotated[Name, about(
        "A tensor that only this layout has. A table without a signature is used only if you pass it with "
        "`--mapping`.")]  # fmt: skip
    include: Annotated[list[Text], about(
        "Tables whose rows are added: for each, the name of a table that comes with wdport, or the path of a `.yaml` "
        "file in this file's folder or below it.")]  # fmt: skip
    torch: Annotated[Text, about("Function that builds the PyTorch model, as `module:function`.")]
    keras: Annotated[Text, about("Function that builds the Keras model, as `module:function`.")]
    inputs: Annotated[list[Text], about(
        "Inputs of the models, `NAME: AXES [-> AXES] [, VALUES]`, as described in `docs/inputs.md`.")]  # fmt: skip
    outputs: Annotated[list[Text], about(
        "Layouts of the outputs, `AXES [-> AXES]` for each, as described in `docs/inputs.md`; found by their sizes if "
        "absent.")]  # fmt: skip
    config: Annotated[list[Text], about("Keys of `config.json` that the two functions take as arguments.")]
    sampling: Annotated[dict[str, object], about(
        "Facts about your own generative model that sampling needs.")]  # fmt: skip
    sections: Annotated[list[SectionForm], Meta(min_length=1), about(
        "Groups of rows with a common prefix.")]  # fmt: skip
