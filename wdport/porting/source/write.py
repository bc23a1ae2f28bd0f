"""Print the classes of a port as a Python module, and the rows of its table."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from wdport.porting.graph import Graph
from wdport.porting.lowering import helpers
from wdport.porting.lowering.keras_graph import KerasGraph, Placed
from wdport.porting.lowering.lower import GraphLowering
from wdport.porting.source.classes import Class, Instances, condition
from wdport.porting.source.code import Literal
from wdport.porting.source.scopes import Scopes

RESERVED = frozenset((
    *dir(keras.Model), *vars(keras.Model()), *vars(keras.layers.Layer()), "loss", "optimizer", "name", "dtype",
))  # fmt: skip
"""Attributes that Keras's classes have already, or get from ``compile``."""


UNREAD = "inference does not read it"


@dataclass(frozen=True)
class InputShape:
    """An input of the port: its name, its shape in Keras's layout with ``None`` for free sizes, the sizes of the trace,
    and its dtype."""

    name: str
    shape: tuple[int | None, ...]
    sizes: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class PortSource:
    """A written port.

    Attributes:
        text: the Python module.
        rows: the rows of its table.
        classes: the number of its classes.
    """

    text: str
    rows: tuple[Mapping[str, Any], ...]
    classes: int

    @property
    def lines(self) -> int:
        return self.text.count("\n")


def write_source(
    lowering: GraphLowering,
    inputs: Sequence[InputShape],
    module: str,
    stated: Mapping[str, Mapping[str, Any]] | None = None,
) -> PortSource:
    """The source of a lowered graph without a hole; ``module`` is the name of the PyTorch model's module. Raises
    :class:`~wdport.porting.source.body.NotWrittenError`."""
    lowered = lowering.result
    scopes = Scopes(lowering.graph, lowered, lowering.places)
    scopes.root.parameters = [lowered.inputs[one.name].value for one in inputs]
    scopes.root.results = list(dict.fromkeys(placed.value for placed in lowered.outputs))
    instances = Instances(scopes, RESERVED, stated or {})
    package = module.rpartition(".")[2]
    used = sorted({name for instance in instances.by_path.values() for name in instance.body.helpers})
    blocks = [inspect.getsource(getattr(helpers, name)).rstrip() for name in used]
    blocks += [_class_text(class_, package, instances.trained) for class_ in instances.classes]
    blocks.append(_build_text(instances.by_path[""].class_, inputs))
    body = "\n\n\n".join(blocks)
    head = [f'"""Keras port of {module}."""', ""]
    head += ["import math", ""] if "math." in body else []
    head += ["import keras", f"from keras import {'layers, ' if 'layers.' in body else ''}ops", "", ""]
    return PortSource(formatted("\n".join(head) + body + "\n"), tuple(rows_of(lowered, lowering.graph, instances)),
                  len(instances.classes))  # fmt: skip


def _class_text(class_: Class, package: str, trained: Collection[str]) -> str:
    is_model = "" in class_.paths
    names = [*class_.parameters, *class_.flags]
    base = "keras.Model" if is_model else "layers.Layer"
    lines = [f'@keras.saving.register_keras_serializable("{package}")', f"class {class_.name}({base}):",
             f'    """{class_.type}."""', ""]  # fmt: skip
    required = [name for name, values in class_.parameters.items() if frozenset(values) == class_.paths]
    optional = [f"{name}=None" for name in class_.parameters if name not in required]
    signature = ", ".join(["self", *required, *optional, *(f"{name}=False" for name in class_.flags), "**kwargs"])
    init = [f"        {line}" for line in _init_lines(class_)]
    if names or init:
        lines += [f"    def __init__({signature}):", "        super().__init__(**kwargs)"]
    if class_.parameters:
        parameters = list(class_.parameters)
        together = f"        {', '.join(f'self.{name}' for name in parameters)} = {', '.join(parameters)}"
        lines += [together] if len(together) <= 88 else [f"        self.{name} = {name}" for name in parameters]
    lines += [*init, ""] if names or init else []
    inputs = list(class_.body.parameters)
    arguments = ", ".join(inputs) if not is_model or len(inputs) == 1 else "inputs"
    training = ", training=False" if class_.paths & set(trained) else ""
    lines += [f"    def call(self{f', {arguments}' if arguments else ''}{training}):"]
    if is_model and len(inputs) > 1:
        lines.append(f"        {', '.join(inputs)} = inputs")
    lines += [f"        {line}" for line in _body_lines(class_)]
    if names:
        inner = [f'"{name}": self.{name}' for name in class_.parameters]
        inner += [f'"{name}": self.{name} is not None' for name in class_.flags]
        lines += ["", "    def get_config(self):", f"        return {{**super().get_config(), {', '.join(inner)}}}"]
    return "\n".join(lines)


def _text(class_: Class, number: int, prefix: str) -> str:
    """A line with the arguments of the constructor in place of constants that differ."""
    line = class_.lines[number].line
    parts, place = [], 0
    for part in line.code.parts:
        if isinstance(part, Literal):
            name = class_.places.get((number, place))
            parts.append(str(part) if name is None else f"{prefix}{name}")
            place += 1
        else:
            parts.append(part)
    return "".join(parts)


def _init_lines(class_: Class) -> list[str]:
    lines = [f"self.{name} = None" for name in dict.fromkeys(_optional(class_))]
    previous = class_.paths
    for number, line in enumerate(class_.lines):
        if not line.line.attribute:
            continue
        paths = frozenset(line.constants)
        if paths not in (class_.paths, previous):
            flag = next((name for name, owners in class_.flags.items() if owners == paths), None)
            other = next((name for name, owners in class_.flags.items() if owners == class_.paths - paths), None)
            is_other = previous == class_.paths - paths
            lines.append("else:" if is_other else f"if {flag}:" if flag else f"if not {other}:")
        lines.append(f"{'    ' if paths != class_.paths else ''}{_text(class_, number, '')}")
        previous = paths
    return lines


def _optional(class_: Class) -> list[str]:
    """The attributes that not every instance has."""
    owners: dict[str, set[str]] = {}
    for line in class_.lines:
        if line.line.attribute:
            owners.setdefault(line.line.attribute, set()).update(line.constants)
    return [name for name, paths in owners.items() if paths != class_.paths]


def _body_lines(class_: Class) -> list[str]:
    lines: list[str] = []
    previous = class_.paths
    for number, line in enumerate(class_.lines):
        if line.line.attribute:
            continue
        paths = frozenset(line.constants)
        if paths != class_.paths and paths != previous:
            is_other = previous != class_.paths and paths == class_.paths - previous
            lines.append("else:" if is_other else f"if {condition(class_, paths)}:")
        indent = "    " if paths != class_.paths else ""
        lines += [f"{indent}{one}" for one in _text(class_, number, "self.").split("\n")]
        previous = paths
    return lines


def _build_text(class_: Class | None, inputs: Sequence[InputShape]) -> str:
    assert class_ is not None
    texts = []
    for one in inputs:
        sizes = tuple(size if free is None else free for free, size in zip(one.shape, one.sizes, strict=True))
        texts.append(f"ops.zeros({sizes}" + ("" if one.dtype == "float32" else f', dtype="{one.dtype}"') + ")")
    arguments_text = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
    return f"def build():\n    model = {class_.name}()\n    model({arguments_text})\n    return model"


def rows_of(lowered: KerasGraph, graph: Graph, instances: Instances) -> list[Mapping[str, Any]]:
    """The rows of the table: every tensor of the state_dict is used, tied or dropped."""
    rows: list[Mapping[str, Any]] = []
    covered: list[str] = []
    inside: list[str] = []
    for row in lowered.rows:
        torch = row["torch"]
        if "kind" in row:
            if row["keras"].endswith("_<layer>"):
                keras_path = f"{instances.keras_path(f'{torch}.0').removesuffix('/0')}/<layer>"
            else:
                keras_path = instances.keras_path(lowered.layers[row["keras"]].torch)
            rows.append({"torch": torch, "keras": keras_path, "kind": row["kind"]})
            inside.append(f"{torch}." if torch else "")
        else:
            rows.append({"torch": torch, "keras": instances.keras_path(torch), "rule": "identity"})
            covered.append(torch)
    for name, held in graph.tensors.items():
        if name in covered or name.startswith(tuple(inside)):
            continue
        owner = graph.modules[name.rpartition(".")[0]]
        persistent = held.kind == "parameter" or name.rpartition(".")[2] in owner.buffers
        if held.same_as and (held.same_as in covered or held.same_as.startswith(tuple(inside))):
            rows.append({"torch": name, "same_as": held.same_as})
        elif persistent:
            reason = "the port computes it, as the constructor does" if name in lowered.computed else UNREAD
            rows.append({"torch": name, "drop": reason})
    return rows


def formatted(text: str) -> str:
    """The text as ``ruff format`` prints it with lines of 88 characters, if ruff is installed."""
    ruff = shutil.which("ruff")
    command = [ruff] if ruff else [sys.executable, "-m", "ruff"]
    options = ["format", "--isolated", "--line-length", "88", "--stdin-filename", "port.py", "-"]
    try:
        done = subprocess.run([*command, *options], input=text, capture_output=True, text=True, check=False)
    except OSError:
        return text
    return done.stdout if done.returncode == 0 and done.stdout else text


def input_shape(placed: Placed, free: Sequence[bool]) -> InputShape:
    """An input; ``free`` are the axes of PyTorch's tensor that have several sizes."""
    shape = tuple(None if free[axis] else int(placed.shape[axis]) for axis in placed.order)
    dtype = {"float64": "float32", "int64": "int32"}.get(placed.dtype, placed.dtype)
    sizes = tuple(int(placed.shape[axis]) for axis in placed.order)
    return InputShape(placed.value.name, shape, sizes, dtype)
