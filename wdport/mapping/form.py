"""The fields of a mapping table of format 2, and of each of its rows.

The readers take the names that they know from here, and :mod:`wdport.schemas` makes the published schema of it.
"""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from wdport.declared import Also, Positive, Text

_INDEX = "<[a-z_]+(?:[+-][0-9]{1,9})?>"
_WHOLE = rf"(?![\s\S]*>[0-9]*<)(?:[^<>*?]|{_INDEX})"

Name = Annotated[str, Also(
    pattern=rf"^(?!\s)(?![\s\S]*<([a-z_]+)(?:[+-][0-9]{{1,9}})?>[\s\S]*<\1[+>-]){_WHOLE}+(?<!\s)$",
    examples=["blocks.<block>.mlp.0"],
)]  # fmt: skip
"""A name that is matched whole; ``<index>`` stands for one integer."""

Within = Annotated[str, Also(pattern=rf"^(?=[\s\S]*\S){_WHOLE}+$")]
"""A suffix of the row's name."""

Prefix = Annotated[str, Also(pattern=rf"^(?!\s){_WHOLE}+$", examples=["encoder.<level>"])]
"""A prefix of other names."""

Axes = Annotated[str, Also(pattern=r"^[^>]*[^>-]\s*->\s*[^>]+$", examples=["b c h w -> b h w c", "out in -> in out"])]
"""Axes on both sides of an arrow."""

Names = Annotated[list[Name], Also(minItems=1)]
Sizes = Annotated[dict[str, Positive], Also(minProperties=1)]


class LayerRow(TypedDict, total=False):
    """A layer: a module of the PyTorch model and the layer of the Keras model that computes the same."""

    torch: Required[Name]
    """Path of the PyTorch module, its parts joined by ``.``; in a section, without the section's ``torch``. ``.`` is
    the section's prefix itself."""
    keras: Required[Name]
    """Path of the Keras layer, its parts joined by ``/``; in a section, without the section's ``keras``. It has the
    same indices as ``torch``."""
    kind: Text
    """Layer kind. It determines the layer's tensors, their rules, the layout of its output and the settings that are
    compared. Without a kind only outputs are compared."""
    names: Annotated[dict[str, Within], Also(minProperties=1)]
    """Suffixes of the PyTorch tensors that are not the kind's own, by the kind's names: ``{query: to_q}``."""
    formerly: Annotated[dict[str, Within], Also(minProperties=1)]
    """Old names of modules within the module, by the kind's names: ``{out: proj_attn}``. Such tensors are read under
    today's names."""
    flatten: Axes
    """Order of the axes that were flattened before the layer, PyTorch's to Keras's: ``c h w -> h w c``."""
    sizes: Sizes
    """Sizes of axes that no shape determines, by the names of ``flatten`` or ``axes``."""
    axes: Axes
    """Layout of the output, PyTorch's to Keras's, if it is not the kind's: ``b c h w -> b h w c``."""
    then: Text
    """Activation that follows the PyTorch module and is part of the Keras layer."""
    up_to: Literal["shift"]
    """``shift``: outputs may differ by a shift that is the same at every token."""
    optional: bool
    """Whether the row may match nothing."""
    when: Text
    """Feature without which the row does not apply. Give it on the row or on its section."""


class TensorRow(TypedDict, total=False):
    """One or more tensors that belong to no layer kind, and what is done with them: exactly one of ``keras`` with
    ``rule``, ``check`` and ``drop``; ``check`` may also be given with ``keras``."""

    torch: Required[Name | Names]
    """Name of the PyTorch tensor, or the names of several that are combined."""
    keras: Name | Names
    """Path of the Keras variable, or the paths of several that the tensor fills. They have the same indices as
    ``torch``."""
    rule: Text
    """How the axes are rearranged: the name of a rule, or the rule itself, as in ``out in -> in out``."""
    combine: Text
    """Arithmetic that combines several tensors before the rule; ``weight_norm`` takes a magnitude and a direction."""
    sizes: Sizes
    """Sizes of axes that no shape determines, by the names of the rule's axes."""
    check: Name
    """Constant of the model family that the tensor must equal."""
    drop: Text
    """Reason for leaving the tensor out."""
    optional: bool
    """Whether the row may match nothing."""
    when: Text
    """Feature without which the row does not apply. Give it on the row or on its section."""


class TieRow(TypedDict, total=False):
    """A tensor that may be absent; if it is present, it equals another one bit for bit and fills nothing."""

    torch: Required[Name]
    """Name of the tensor."""
    same_as: Required[Name]
    """Name of the tensor that it equals, with the same indices."""
    when: Text
    """Feature without which the row does not apply. Give it on the row or on its section."""


class Rows(TypedDict, total=False):
    """Rows of a table or of one of its sections."""

    layers: Annotated[list[LayerRow], Also(minItems=1)]
    """Rows for layers."""
    tensors: Annotated[list[TensorRow], Also(minItems=1)]
    """Rows for tensors that belong to no layer kind."""
    tied: Annotated[list[TieRow], Also(minItems=1)]
    """Rows for tensors that equal another one."""


class SectionForm(Rows, total=False):
    """Rows with a common prefix and a common feature."""

    torch: Prefix
    """Prefix of every PyTorch name of the section, without the trailing ``.``."""
    keras: Prefix
    """Prefix of every Keras path of the section, without the trailing ``/``."""
    when: Text
    """Feature without which no row of the section applies."""


class TableForm(Rows, total=False):
    """A mapping table of format 2: which layers of a PyTorch model and of its Keras port compute the same."""

    format: Required[Literal[2]]
    """Format of the table."""
    family: Text
    """Model family; if absent ``custom``, your own model."""
    variant: Text
    """Name of the key layout within the family."""
    signature: Name
    """A tensor that only this layout has. A table without a signature is used only if it is named."""
    include: list[Text]
    """Tables whose rows are added: the name of one that comes with wdport, or the path of a ``.yaml`` file beside this
    file or below."""
    torch: Text
    """Function that builds the PyTorch model, ``module:name``."""
    keras: Text
    """Function that builds the Keras model, ``module:name``."""
    inputs: list[Text]
    """Inputs of the models in the order of the call, ``NAME: AXES [-> AXES] [, DRAW]``. ``b`` is the batch."""
    config: list[Text]
    """Keys of ``config.json`` that the two functions take as arguments."""
    sampling: dict[str, object]
    """What sampling needs to know about a generative model of your own."""
    sections: Annotated[list[SectionForm], Also(minItems=1)]
    """Groups of rows with a common prefix."""
