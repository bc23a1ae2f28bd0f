"""The content of a mapping table: rows for tensors, rows for taps, and the table itself.

Both table formats are parsed into these types. They hold only data: patterns with named indices, rules, names of
constants, reasons, and text that other modules parse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wdport.mapping.axes import Combine, FillValue, Rule
from wdport.mapping.names import NamePattern


@dataclass(frozen=True)
class Layer:
    """The row under ``layers:`` from which rows for tensors are derived; ``number`` distinguishes two on one line, and
    a ``bare`` layer may have no tensors."""

    number: int
    line: int
    torch: NamePattern
    optional: bool = False
    file: str = ""
    bare: bool = False


@dataclass(frozen=True)
class Row:
    """What is done with one group of source tensors.

    Exactly one of these holds: ``keras`` and ``rules`` are given (the tensors are used), only ``check`` (compared
    with a constant of the model family and then left out), ``drop`` (left out for that reason) or ``same_as``
    (bit for bit another source tensor, and then left out). ``check`` with ``keras`` means used *and* compared.

    Attributes:
        line: the row's line in its file.
        torch: the source tensors, in the order of the stacked axis or of ``combine``.
        keras: the variables that they fill.
        rules: alternatives; the first that fits the shapes is used.
        combine: the arithmetic that combines several tensors before the rule.
        sizes: sizes of axes that no shape determines.
        digest: of the values that a tensor must have to be left out.
        when: a feature without which the row does not apply.
        optional: whether it may match nothing.
        layer: the layer row that it is derived from; at least one of the layer's rows must match, unless ``optional``.
        others: alternative paths of the variables, tried in turn if the model lacks any of ``keras``.
        file: the included table that contains the row; empty for the table itself.
    """

    line: int
    torch: tuple[NamePattern, ...]
    keras: tuple[NamePattern, ...] = ()
    rules: tuple[Rule, ...] = ()
    combine: Combine = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    check: NamePattern | None = None
    drop: str | None = None
    digest: str = ""
    same_as: NamePattern | None = None
    when: str | None = None
    optional: bool = False
    layer: Layer | None = None
    others: tuple[tuple[NamePattern, ...], ...] = ()
    file: str = ""

    @property
    def place(self) -> str:
        """The place of the row, for a sentence."""
        return _place(self)

    @property
    def short(self) -> str:
        """The place without naming the table itself."""
        return self.place if self.file else f"line {self.line}"


def _place(row: Row | ConstantRow) -> str:
    return f"line {row.line} of {row.file or 'the table'}"


@dataclass(frozen=True)
class TapRow:
    """Two layers, by path, whose outputs must agree; with ``shift``, up to a shift that is the same at every token.

    An ``optional`` tap is skipped, and reported, if the reference has no such module, does not call it, or calls other
    layers inside it; the layers inside it are compared instead.

    Attributes:
        line: the row's line in its file.
        torch: path of the PyTorch module.
        keras: path of the Keras layer.
        kind: name of the layer kind, whose hyper-parameters are compared; empty if none is stated.
        axes: layouts of the activations, PyTorch's to Keras's, the most likely first; empty if none is stated.
        then: what follows the PyTorch module before the Keras layer's output, such as ``relu``.
        shift: whether the outputs may differ by a shift that is the same at every token.
        optional: see above.
        implied: a part of another row's layer; skipped if the reference has no such module.
        others: alternative paths of the Keras layer.
        when: a feature without which the row does not apply.
        sizes: sizes of axes that no shape determines.
        flatten: the order of the features that were flattened before the layer, PyTorch's to Keras's.
        formerly: submodules and tensors by their names in old files, and by their current names.
        stack: the paths of the Keras layers that correspond to one PyTorch module of several layers; the last is
            compared.
        file: the included table that contains the row; empty for the table itself.
    """

    line: int
    torch: NamePattern
    keras: NamePattern
    kind: str = ""
    axes: tuple[Rule, ...] = ()
    then: str = ""
    shift: bool = False
    optional: bool = False
    implied: bool = False
    others: tuple[NamePattern, ...] = ()
    when: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    flatten: Rule | None = None
    formerly: tuple[tuple[NamePattern, NamePattern], ...] = ()
    stack: NamePattern | None = None
    file: str = ""


@dataclass(frozen=True)
class ConstantRow:
    """Variables that no tensor fills.

    Attributes:
        line: the row's line in its file.
        keras: the variables.
        fill: the constant that they are filled with.
        when: a feature without which the row does not apply.
        file: the included table that contains the row; empty for the table itself.
    """

    line: int
    keras: NamePattern
    fill: FillValue
    when: str | None = None
    file: str = ""

    @property
    def place(self) -> str:
        """The place of the row, for a sentence."""
        return _place(self)


@dataclass(frozen=True)
class Table:
    """One mapping table.

    Attributes:
        path: the file's name in errors.
        sha256: of the file's bytes; with includes, of the hashes of all files.
        family: the model family that it is for.
        variant: the key layout within the family.
        signature: a tensor that only this layout has; without one the table is used only if it is named.
        rows: what is done with every tensor.
        taps: which layers compute the same.
        torch: the factory of the reference, ``module:name``, as text.
        keras: the factory of the port, as text.
        inputs: the inputs of the models, as text.
        outputs: the axes of the outputs, as text; by their sizes if it is empty.
        config: keys of a ``config.json`` that the factories take.
        includes: the files whose rows are included.
        sampling: the settings of a generative model's samplers, as plain values.
        fills: which variables are filled with a constant.
    """

    path: str
    sha256: str
    family: str
    variant: str
    signature: NamePattern | None
    rows: tuple[Row, ...]
    taps: tuple[TapRow, ...]
    torch: str = ""
    keras: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    sampling: Mapping[str, object] = field(default_factory=dict)
    fills: tuple[ConstantRow, ...] = ()
