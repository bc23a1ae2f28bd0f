"""Print the classes of a port as a Python module, and the rows of its table."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from wdport.mapping.moves import digest_of
from wdport.porting.graph import Graph, TensorSource, mapped
from wdport.porting.lowering.holes import line_of
from wdport.porting.lowering.keras_graph import Hole, KerasGraph, Placed, rows_besides
from wdport.porting.lowering.lower import GraphLowering
from wdport.porting.source.call_methods import CALL
from wdport.porting.source.classes import Class
from wdport.porting.source.code import ATOM, LOOSE, POWER, Literal, expression_code, literal
from wdport.porting.source.comprehensions import with_comprehensions
from wdport.porting.source.frozen import freeze
from wdport.porting.source.initial_buffers import starts_of
from wdport.porting.source.instances import Instances, NotOneMethodError
from wdport.porting.source.pruned import pruned_source
from wdport.porting.source.scopes import Scopes
from wdport.porting.source.shared import share
from wdport.porting.traced_arguments import ConstructorCall

RESERVED = frozenset((
    *dir(keras.Model), *vars(keras.Model()), *vars(keras.layers.Layer()), "loss", "optimizer", "name", "dtype",
))  # fmt: skip
"""Attributes that Keras's classes have already, or get from ``compile``."""


@dataclass(frozen=True)
class InputShape:
    """An input of the port: its name, its shape in Keras's layout with ``None`` for free sizes, the sizes of the trace,
    and its dtype."""

    name: str
    shape: tuple[int | None, ...]
    sizes: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class HoleMethod:
    """A method that stands for steps without a counterpart, and the steps."""

    class_: Class
    name: str
    holes: tuple[Hole, ...]

    @property
    def places(self) -> tuple[str, ...]:
        """Where the steps are in the code."""
        return tuple(dict.fromkeys(place for hole in self.holes if (place := line_of(hole.node.place))))

    @property
    def text(self) -> str:
        """Its source."""
        first = self.holes[0]
        where = f" at {', '.join(self.places)}" if self.places else ""
        # A shape stays in one line.
        message = re.sub(r"(?<=\d), (?=\d)", ",\u00a0", f"{first.text}{where}: {first.shapes}")
        lines = [line.replace("\u00a0", " ") for line in textwrap.wrap(message, 72, break_on_hyphens=False)]
        texts = [json.dumps(line, ensure_ascii=False) for line in (*(f"{one} " for one in lines[:-1]), lines[-1])]
        inner = "".join(f"\n            {one}" for one in texts)
        return (f"    def {self.name}({', '.join(['self', *first.parameters])}):\n"
                f"        raise NotImplementedError({inner}\n        )")  # fmt: skip


@dataclass(frozen=True)
class PortSource:
    """A written port.

    Attributes:
        text: the Python module.
        rows: the rows of its table.
        classes: the number of its classes.
        untrained: parameters that PyTorch does not train, and the port does.
        methods: the methods that stand for steps without a counterpart.
        empty: buffers that are zeros in a new port, and not what PyTorch's constructor computes.
    """

    text: str
    rows: tuple[Mapping[str, Any], ...]
    classes: int
    untrained: tuple[str, ...] = ()
    methods: tuple[HoleMethod, ...] = ()
    empty: tuple[str, ...] = ()

    @property
    def lines(self) -> int:
        return self.text.count("\n")


def write_source(
    lowering: GraphLowering,
    inputs: Sequence[InputShape],
    module: str,
    constructors: Mapping[str, ConstructorCall] | None = None,
    still: Collection[str] = (),
    arguments: Mapping[str, Any] | None = None,
    of_class: bool = False,
) -> PortSource:
    """The source of a lowered graph; ``module`` is the name of the PyTorch model's module, and ``still``
    are the paths of layers that stay in evaluation mode. ``arguments`` are those of the function that builds PyTorch's
    model, and ``of_class`` says whether that is the class itself. Raises
    :class:`~wdport.porting.source.body.NotWrittenError`."""
    lowered = lowering.result
    untrained = tuple(freeze(lowered, lowering.graph))
    starts, functions = starts_of(lowering), lowering.functions
    while True:
        scopes = Scopes(lowering.graph, lowered, lowering.places, still, functions)
        scopes.root.parameters = [lowered.inputs[one.name].value for one in inputs]
        scopes.root.results = list(dict.fromkeys(placed.value for placed in lowered.outputs))
        scopes.root.returned = lowered.outputs and mapped(
            lowering.graph.returned, lambda place: lowered.outputs[place].value
        )
        try:
            instances = Instances(scopes, RESERVED, constructors or {}, starts, share)
            break
        except NotOneMethodError as error:
            # Its steps are written where it is called.
            functions = {serial: tuple(one for one in calls if one.key != error.key)
                         for serial, calls in functions.items()}  # fmt: skip
    package = module.rpartition(".")[2]
    used = sorted({name for instance in instances.by_path.values()
                   for body in instance.bodies.values() for name in body.helpers})  # fmt: skip
    defaults = {class_.name: {**{name: str(class_.defaults.get(name, "")) for name in class_.parameters},
                           **dict.fromkeys(class_.flags, "False")} for class_ in instances.classes}  # fmt: skip
    blocks: list[str] = []
    methods = _methods(scopes, instances)
    at_start = _inputs_text(inputs, symbolic=not methods)
    functions_texts: dict[str, str] = {}
    for class_ in instances.classes:
        class_text = _class_text(class_, package, instances.trained, methods)
        class_text = with_comprehensions(_with_functions(class_, class_text, functions_texts), defaults)
        if "" in class_.paths and not _builds_with_floats(class_, class_text, inputs):
            class_text += f"\n\n    def build_from_config(self, config):\n        self({at_start})"
        blocks += [functions_texts[name] for name in functions_texts if functions_texts[name] not in blocks]
        blocks.append(class_text)
    blocks.append(_build_text(instances.by_path[""].class_, at_start, arguments or {}, of_class))
    body = "\n\n\n".join([*(pruned_source(name, blocks) for name in used), *blocks])
    rows = rows_of(lowered, lowering.graph, instances, lowering.values)
    head = [f'"""Keras port of {module}."""', ""]
    head += ["import math", ""] if "math." in body else []
    imported = ", ".join(name for name in ("layers", "ops") if f"{name}." in body)
    head += ["import keras", *([f"from keras import {imported}"] if imported else []), "", ""]
    return PortSource(formatted("\n".join(head) + body + "\n"), tuple(rows),
                  len(instances.classes), untrained, methods,
                      tuple(path for path, start in starts.items() if not start.is_written))  # fmt: skip


def _methods(scopes: Scopes, instances: Instances) -> tuple[HoleMethod, ...]:
    """The methods that stand for steps without a counterpart, in the order of the first step of each."""
    holes: dict[tuple[int, str], list[Hole]] = {}
    for serial, hole in scopes.lowered.holes.items():
        instance = instances.by_path[scopes.home[serial].path]
        if name := instance.body.method_of(hole):
            holes.setdefault((next(i for i, one in enumerate(instances.classes) if one is instance.class_), name),
                             []).append(hole)  # fmt: skip
    return tuple(HoleMethod(instances.classes[index], name, tuple(listed)) for (index, name), listed in holes.items())


def _class_text(class_: Class, package: str, trained: Collection[str], methods: Sequence[HoleMethod]) -> str:
    is_model = "" in class_.paths
    names = [*class_.parameters, *class_.flags]
    base = "keras.Model" if is_model else "layers.Layer"
    lines = [f'@keras.saving.register_keras_serializable("{package}")', f"class {class_.name}({base}):",
             f'    """{class_.docstring}"""', ""]  # fmt: skip
    required = class_.required
    optional = [f"{name}={class_.defaults.get(name, 'None')}" for name in class_.parameters if name not in required]
    signature = ", ".join(["self", *required, *optional, *(f"{name}=False" for name in class_.flags), "**kwargs"])
    init = [f"        {line}" for line in _init_lines(class_)]
    inputs = list(class_.inputs)
    stated = [f"{name}=None" if name in class_.optional_inputs else name for name in inputs]
    arguments = ", ".join(stated) if not is_model or len(inputs) == 1 else "inputs"
    training = ", training=False" if class_.paths & set(trained) else ""
    body = [f"    def call(self{f', {arguments}' if arguments else ''}{training}):"]
    if is_model and len(inputs) > 1:
        body.append(f"        {', '.join(inputs)} = inputs")
    body += [f"        {line}" for line in _body_lines(class_)]
    for name, parameters in list(class_.instances[0].signatures.items())[1:]:
        lines_of_method = _body_lines(class_, name)
        trains = training if name.startswith(f"{CALL}_") or "training=training" in "".join(lines_of_method) else ""
        body += ["", f"    def {name}({', '.join(['self', *parameters])}{trains}):"]
        body += [f"        {line}" for line in lines_of_method]
    body += [f"\n{method.text}" for method in methods if method.class_ is class_]
    # Keras makes the configuration of a layer from the arguments of its constructor, and of a model it does not.
    if names and is_model:
        inner = [f'"{name}": self.{name}' for name in class_.parameters]
        inner += [f'"{name}": self.{name} is not None' for name in class_.flags]
        body += ["", "    def get_config(self):", f"        return {{**super().get_config(), {', '.join(inner)}}}"]
    if names or init:
        lines += [f"    def __init__({signature}):", "        super().__init__(**kwargs)"]
    text = "\n".join(body)
    if stored := [name for name in class_.parameters if re.search(rf"\bself\.{name}\b", text)]:
        together = f"        {', '.join(f'self.{name}' for name in stored)} = {', '.join(stored)}"
        lines += [together] if len(together) <= 88 else [f"        self.{name} = {name}" for name in stored]
    for name, length in class_.lengths.items():
        lines += [f"        if len({name}) != {length}:",
                  f'            raise ValueError("{name} must have {length} elements")']  # fmt: skip
    for name, values in class_.decided.items():
        read = f"tuple({name})" if any(isinstance(value, tuple) for value in values) else name
        lines += [f"        if {read} not in {literal(values)}:",
                  f'            raise ValueError("{name} must be one of those of the PyTorch model")']  # fmt: skip
    # Keras builds a layer when it is called with a tensor.
    init += [] if inputs or is_model else ["        self.built = True"]
    lines += [*init, ""] if names or init else []
    lines += body
    return "\n".join(lines)


def _with_functions(class_: Class, class_text: str, functions: dict[str, str]) -> str:
    """The text of a class without the methods that are functions of the author's and read nothing of the class, which
    become ``functions`` of the module, by name."""
    for name, body in class_.instances[0].bodies.items():
        start = class_text.find(f"    def {name}(self")
        end = class_text.find("\n\n    def ", start)
        method = class_text[start : end if end > 0 else None]
        function = textwrap.dedent(method).replace("(self, ", "(", 1)
        # Not if the name is that of something else.
        others = re.sub(rf"self\.{name}\(", "", class_text[:start] + class_text[start + len(method) :])
        is_used = re.search(rf"(?<![.\w]){name}\b", others) or functions.get(name, function) != function
        if body.is_function and not re.search(r"\bself\b", function) and not is_used:
            functions[name] = function
            class_text = class_text.replace(f"\n\n{method}", "").replace(f"self.{name}(", f"{name}(")
    return class_text


def _text(class_: Class, number: int, prefix: str) -> str:
    """A line with expressions of the constructor's arguments in place of constants."""
    parts = class_.lines[number].line.code.parts
    texts: list[str] = []
    place = 0
    for position, part in enumerate(parts):
        if not isinstance(part, Literal):
            texts.append(part)
            continue
        expression = class_.expressions.get((number, place))
        place += 1
        if expression is None:
            texts.append(str(part))
            continue
        code = expression_code(expression, prefix)
        texts.append("".join(map(str, code.inside(_level(texts, parts[position + 1 :])))))
    return "".join(texts)


def _level(before: Sequence[str], after: Sequence[str | Literal]) -> int:
    """How tightly an expression must be bound between these parts."""
    last = next((part for part in reversed(before) if part), "(")
    following = next((str(part) for part in after if str(part)), ")")
    if last.endswith(("(", "[", ", ", "=", ":")) and following.startswith((")", "]", ",", ":")):
        return LOOSE
    return POWER if last.endswith((" * ", " / ")) and not following.startswith("**") else ATOM


def _init_lines(class_: Class) -> list[str]:
    lines = [f"self.{name} = {expression_code(expression, '')}" for name, expression in class_.attributes.items()]
    lines += [f"self.{name} = None" for name in dict.fromkeys(_optional(class_))]
    previous = class_.paths
    for number, line in enumerate(class_.lines):
        if not line.line.attribute:
            continue
        paths = frozenset(line.constants)
        if paths not in (class_.paths, previous):
            is_other = previous == class_.paths - paths
            lines.append("else:" if is_other else f"if {class_.condition(paths, '')}:")
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


def _body_lines(class_: Class, method: str = "") -> list[str]:
    lines: list[str] = []
    previous, indent = class_.paths, ""
    for number, line in enumerate(class_.lines):
        if line.line.attribute or line.line.method != method:
            continue
        paths = frozenset(line.constants)
        if paths != class_.paths and paths != previous:
            is_other = previous != class_.paths and paths == class_.paths - previous
            has_returned = is_other and lines[-1].lstrip().startswith("return ")
            if not has_returned:
                lines.append("else:" if is_other else f"if {class_.condition(paths)}:")
            indent = "" if has_returned else "    "
        elif paths == class_.paths:
            indent = ""
        lines += [f"{indent}{one}" for one in _text(class_, number, "self.").split("\n")]
        previous = paths
    return lines


def _builds_with_floats(class_: Class, class_text: str, inputs: Sequence[InputShape]) -> bool:
    """Whether the model runs with inputs of float32, with which Keras builds it when it loads a file: an embedding
    takes them, they have sizes, and most functions of whole numbers or booleans reject them."""
    embeddings = "|".join(re.findall(r"self\.(\w+) = layers\.Embedding\(", class_text)) or "(?!)"
    for name, one in zip(class_.body.parameters, inputs, strict=True):
        elsewhere = re.sub(
            rf"(?:self\.(?:{embeddings})|ops\.shape)\({name}\)", "", class_text.partition("def call(")[2]
        )
        uses = [line for line in elsewhere.splitlines()[1:] if re.search(rf"\b{name}\b", line)]
        if one.dtype != "float32" and any(not line.endswith(" = inputs") for line in uses):
            return False
    return True


def _inputs_text(inputs: Sequence[InputShape], symbolic: bool) -> str:
    """The model's inputs in the source, of the sizes with which it is built. They are ``symbolic``, with which a
    ResNet50 is built in 10 s instead of 17, since no step is compiled, or zeros, if a step is left to write: Keras
    warns of a symbolic call that raises."""
    texts = []
    for one in inputs:
        sizes = tuple(size if free is None else free for free, size in zip(one.shape, one.sizes, strict=True))
        dtype = "" if one.dtype == "float32" else f', "{one.dtype}"'
        texts.append(f"{'keras.KerasTensor' if symbolic else 'ops.zeros'}({sizes}{dtype})")
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _build_text(class_: Class | None, at_start: str, arguments: Mapping[str, Any], of_class: bool) -> str:
    """The function that builds the model with the inputs ``at_start``, with the ``arguments`` of the one that builds
    PyTorch's: those of the constructor, if that is what it is, and others as they are in the port."""
    assert class_ is not None
    named = {name: class_.names[name] for name in arguments if of_class and class_.names.get(name) in class_.defaults}
    lines = [f"def build({', '.join(f'{name}={value!r}' for name, value in arguments.items())}):"]
    if fixed := {name: value for name, value in arguments.items() if name not in named}:
        names, values = (", ".join(map(str, listed)) for listed in (fixed, map(repr, fixed.values())))
        pair = f"({names}) != ({values})" if len(fixed) > 1 else f"{names} != {values}"
        what = " and ".join(f"{name}={value!r}" for name, value in fixed.items())
        message = json.dumps(f"the port is written for {what}", ensure_ascii=False)
        lines += [f"    if {pair}:", f"        raise ValueError({message})"]
    stated = ", ".join(f"{parameter}={name}" for name, parameter in named.items())
    return "\n".join([*lines, f"    model = {class_.name}({stated})", f"    model({at_start})", "    return model"])


def rows_of(
    lowered: KerasGraph, graph: Graph, instances: Instances, values: Mapping[TensorSource, Any]
) -> list[Mapping[str, Any]]:
    """The rows of the table: every tensor of the state_dict is used, tied or dropped."""
    rows: list[Mapping[str, Any]] = []
    for row in lowered.rows:
        torch = row["torch"]
        if "kind" in row:
            if row["keras"].endswith("_<layer>"):
                keras_path = f"{instances.keras_path(f'{torch}.0'.lstrip('.')).removesuffix('/0')}/<layer>"
            else:
                keras_path = instances.keras_path(lowered.layers[row["keras"]].torch)
            rows.append({**row, "torch": torch or ".", "keras": keras_path})
        else:
            layer, _, variable = row["keras"].partition("/")
            keras_path = instances.keras_path(lowered.layers[layer].torch if variable else torch)
            rows.append({**row, "keras": f"{keras_path}/{variable}" if variable else keras_path})
    for row in rows_besides(lowered, graph):
        if "drop" in row and row["torch"] in lowered.computed:
            digest = digest_of(values[TensorSource("buffer", row["torch"])])
            row = {**row, "drop": "the port computes it, as the constructor does", "digest": digest}
        rows.append(row)
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


def with_notes(text: str, notes: Sequence[str]) -> str:
    """The source with notes in its docstring."""
    if not notes:
        return text
    lines = [line for note in notes for line in textwrap.wrap(f"{note[0].upper()}{note[1:]}.", 88)]
    head, rest = text.split('"""\n', 1)
    return "\n".join([head, "", *lines, f'"""\n{rest}'])


def input_shape(placed: Placed, free: Sequence[bool]) -> InputShape:
    """An input; ``free`` are the axes of PyTorch's tensor that have several sizes."""
    shape = tuple(None if free[axis] else int(placed.shape[axis]) for axis in placed.order)
    dtype = {"float64": "float32", "int64": "int32"}.get(placed.dtype, placed.dtype)
    sizes = tuple(int(placed.shape[axis]) for axis in placed.order)
    return InputShape(placed.value.name, shape, sizes, dtype)
