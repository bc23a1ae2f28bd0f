"""The user's own model: a Keras function, a mapping table, and a PyTorch function to compare with.

A file of the user's own model holds its graph and its settings, which ``keras.saving.load_model`` follows, while the
comparison runs the function. If the function has changed since, a verdict on it would not hold for the file.

Everything that a shipped family knows about its model is read here from the table and from the model itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NoReturn

from wdport.base.errors import MisfitError, UsageError
from wdport.families.ported import PlainFamily
from wdport.mapping.axes import AxisError, Shape, output_rules
from wdport.mapping.kinds import KINDS
from wdport.mapping.kinds.kind import SPACES
from wdport.mapping.rows import Table
from wdport.models.interface import Array, ConfigurationSource, Document, KerasModel, Port, Resolved, Signature
from wdport.recording.input_text import parse_inputs
from wdport.recording.inputs import Input

if TYPE_CHECKING:
    from wdport.compare.setting_values import SettingsReport
    from wdport.families.roles import OwnFamily

_IGNORED: Final = frozenset({"seed", "shared_object_id", "compile_config", "build_config"})
"""Keys whose values do not change what a trained model computes, or that repeat its shapes."""

_ABSENT: Final = object()


def description(model: KerasModel) -> Document:
    """What Keras writes as ``config.json`` for this model; the class alone for one that Keras cannot save."""
    import keras

    try:
        document: dict[str, object] = json.loads(json.dumps(keras.saving.serialize_keras_object(model)))
    except NotImplementedError:
        return {"module": type(model).__module__, "class_name": type(model).__qualname__}
    return document


def settings_digest(document: object) -> str:
    """A digest of a description, without what changes nothing: names too, which Keras numbers within a process."""
    numbers: dict[str, int] = {}

    def plain(value: object, named: bool = True) -> object:
        if isinstance(value, Mapping):
            if name := _name(value):
                numbers.setdefault(name, len(numbers))
            inside = not str(value.get("class_name")).endswith("Policy")  # whose name is a dtype
            return {key: plain(element, inside) for key, element in value.items()
                    if key not in _IGNORED and (key != "name" or not named)}  # fmt: skip
        if isinstance(value, (list, tuple)):
            return [plain(element) for element in value]
        # Layers refer to one another by their names.
        return numbers.get(value, value) if isinstance(value, str) else value

    return sha256(json.dumps(plain(document), default=str).encode()).hexdigest()[:16]


def first_difference(saved: Document, now: Document, same_release: bool) -> str:
    """The first difference between two descriptions, in words; "" if there is none.

    Keys that only one of them has count if both come from the same release of Keras.
    """
    return next(_differences(saved, now, "", same_release), "")


def _differences(saved: object, now: object, layer: str, strict: bool, key: str = "") -> Iterator[str]:
    if isinstance(saved, Mapping) and isinstance(now, Mapping):
        layer = _name(saved) or layer
        for name in dict.fromkeys((*saved, *now)):
            one, other = saved.get(name, _ABSENT), now.get(name, _ABSENT)
            # Releases of Keras add keys to a layer's configuration, so a key on one side alone is a difference only
            # within one.
            if name not in _IGNORED and (strict or _ABSENT not in (one, other)):
                yield from _differences(one, other, layer, strict, name)
    elif isinstance(saved, list) and isinstance(now, list):
        names = [[_name(element) for element in side] for side in (saved, now)]
        for index, (ours, theirs) in enumerate((names, names[::-1])):
            if unmatched := [name for name in ours if name and name not in theirs]:
                yield f"layer {unmatched[0]} is only in {'what it makes now' if index else 'the file'}"
                return
        if len(saved) != len(now):
            yield _sentence(layer, key, saved, now)
            return
        for one, other in zip(saved, now, strict=True):
            yield from _differences(one, other, layer, strict, key)
    # In Python 1 == True == 1.0, which are different settings here.
    elif saved != now or type(saved) is not type(now):
        yield _sentence(layer, key, saved, now)


def _name(value: object) -> str:
    """The name of a described layer; "" for anything else."""
    # A dtype policy has a class and a name too, "float32" for instance, and is not a layer.
    if not isinstance(value, Mapping) or "class_name" not in value or str(value["class_name"]).endswith("Policy"):
        return ""
    inner = value.get("config")
    return str(inner.get("name") or "") if isinstance(inner, Mapping) else ""


def _sentence(layer: str, key: str, saved: object, now: object) -> str:
    where = f"layer {layer} has {key}" if layer else f"it has {key}"
    return f"{where} {_short(saved)} in the file and {_short(now)} now"


def _short(value: object) -> str:
    if value is _ABSENT:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."


@dataclass(frozen=True)
class CustomConfig:
    """``arguments`` are the arguments of the functions that build the two models."""

    keras: str
    inputs: tuple[str, ...] = ()
    arguments: Document = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """As JSON values."""
        return {"keras": self.keras, "inputs": list(self.inputs), "arguments": dict(self.arguments)}


class CustomFamily(PlainFamily):
    """See :class:`wdport.families.roles.OwnFamily`; one object for each table with the user's options."""

    name = "custom"
    rests_on: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    registered_name = ""
    shown: Mapping[str, str] = MappingProxyType({})

    def __init__(self, table: Table, model: str | None = None, reference: str | None = None,
                 inputs: Sequence[str] = ()) -> None:  # fmt: skip
        self.table = table
        self.model, self.reference = model or table.keras, reference or table.torch
        self.inputs = tuple(inputs or table.inputs)
        self._input_shapes: tuple[tuple[int | None, ...], ...] | None = None
        self._inspected: tuple[Document, KerasModel] | None = None
        self._open: Mapping[str, int] | None = None
        self._flattened: Mapping[str, tuple[int | None, ...]] = {}

    def read_settings(self, document: Document, where: str | Path) -> dict[str, object]:
        """All values of a configuration file: the table states which of them the functions take."""
        return dict(document)

    def parse_setting(self, key: str, text: str) -> NoReturn:
        raise UsageError(f"--set {key}", "a model of your own has no settings", "put them into its function")

    def resolve(self, source: ConfigurationSource, config: Document, flags: Document) -> Resolved:
        """The arguments of the functions, from ``config.json`` or the configuration file."""
        self._require_model()
        if "arguments" in config:  # recorded in a converted file
            return Resolved(replace(self.load_config(config), inputs=self.inputs), self._origins)
        return Resolved(CustomConfig(self.model, self.inputs, self.arguments(source, config)), self._origins)

    @property
    def _origins(self) -> dict[str, str]:
        pairs = {"keras": (self.model, self.table.keras), "inputs": (self.inputs, self.table.inputs)}
        origins = {name: "table" if ours == theirs else "flag" for name, (ours, theirs) in pairs.items()}
        return {**origins, "arguments": "config"}

    def arguments(self, source: ConfigurationSource, config: Document) -> dict[str, object]:
        values = {**(source.document() if self.table.config else {}), **config}
        if missing := [key for key in self.table.config if key not in values]:
            fix = "give a config.json next to the checkpoint, or `--config FILE`"
            raise MisfitError(source.path, f"{', '.join(missing)} not given, and {self.table.path} asks for it", fix)
        return {key: values[key] for key in self.table.config}

    def hint(self, config: CustomConfig) -> str:
        """A possible reason why the table does not fit, as text."""
        from wdport.families.settings_diff import first_unlike

        return first_unlike(self.build(config, "float32"), self.reference, config.arguments, self.table)

    def settings(self, arguments: Document) -> SettingsReport:
        from wdport.families.settings_diff import settings_of

        model = self._build(CustomConfig(str(self.model), self.inputs, dict(arguments)), "float32")
        return settings_of(model, str(self.reference), arguments, self.table)

    def variables(self, config: CustomConfig) -> dict[str, Shape]:
        from wdport.models.keras_runtime import shapes_by_path

        return shapes_by_path(self._keep(config))

    def outline(self, config: CustomConfig) -> dict[str, Shape]:
        from wdport.models.keras_runtime import shapes_by_path, traced_model

        try:
            # Abstract evaluation: a model that is larger than the memory can still be planned.
            return shapes_by_path(traced_model(lambda: self._build(config, "float32")))
        except MisfitError:  # it may read its own values, or fail: the full build reports that
            return self.variables(config)

    def remarks(self) -> list[str]:
        remarks = []
        for path, shape in self._flattened.items():
            names = SPACES.get(len(shape) - 1, ())
            sizes = dict(zip(names, shape, strict=False))
            rows = [tap for tap in self.table.taps if tap.kind and KINDS[tap.kind].flattens and not tap.flatten
                    and tap.keras.match(path) is not None]  # fmt: skip
            # In one order if only one axis has several values.
            if rows and names and shape[-1] != 1 and any(size != 1 for size in sizes.values()):
                order = f"c {' '.join(names)} -> {' '.join(names)} c"
                stated = ", ".join(f"{name}: {size}" for name, size in sizes.items())
                fix = f'write flatten: "{order}", sizes: {{{stated}}} in line {rows[0].line} of the table'
                remarks.append(f"{path}: Flatten puts channels last; if PyTorch's flatten has them first, {fix}")
        return remarks

    def load_config(self, values: Document) -> CustomConfig:
        self._require_model()
        inputs, arguments = values.get("inputs", ()), values.get("arguments", {})
        if not isinstance(inputs, (list, tuple)) or not isinstance(arguments, Mapping):
            raise ValueError("inputs are not a list, or arguments not a mapping")
        return CustomConfig(self.model, tuple(inputs), dict(arguments))

    def build(self, config: CustomConfig, dtype: str | None = None) -> KerasModel:
        """The user's model, owned by the caller from now on: in float32 the one that was inspected before, if any."""
        if (dtype or "float32") == "float32":
            # Handed over, not shared: the caller changes its values.
            model, self._inspected = self._keep(config), None
            return model
        return self._build(config, str(dtype))

    def _keep(self, config: CustomConfig) -> KerasModel:
        """A float32 model to inspect, save and load with; built at the first call."""
        from wdport.models.keras_runtime import plain_float32

        if self._inspected is None or self._inspected[0] != config.arguments:
            with plain_float32():
                self._inspected = (dict(config.arguments), self._build(config, "float32"))
        return self._inspected[1]

    def _build(self, config: CustomConfig, dtype: str) -> KerasModel:
        from wdport.families.user_functions import build_keras
        from wdport.models.keras_inputs import symbolic_inputs
        from wdport.models.keras_runtime import flattened_shapes

        try:
            model = build_keras(self.model, config.arguments, dtype, self.told())
        except UsageError as error:
            self._require_beside(error)
            raise
        self._input_shapes = tuple(tuple(tensor.shape) for tensor in symbolic_inputs(model))
        self._flattened = flattened_shapes(model)
        return model

    def _require_beside(self, error: UsageError) -> None:
        """Raise an error that says what to write if the model's module is not found and stands beside the table: code
        runs only from the current folder and the environment, and not because a file names it."""
        module = self.model.partition(":")[0].partition(".")[0]
        folder = Path(self.table.path).parent
        if find_spec(module) is None and (folder / f"{module}.py").is_file():
            what = f"no module named {module} in this folder or environment; {module}.py stands beside the table"
            raise UsageError(self.model, what, f"write PYTHONPATH={folder} before the command") from error

    def unfilled(self) -> AbstractContextManager[None]:
        return nullcontext()

    def save(self, config: CustomConfig, path: Path, arrays: Iterator[tuple[str, Array]]) -> dict[str, Array]:
        from wdport.families.user_functions import save_filled
        from wdport.models.keras_runtime import plain_float32

        with plain_float32():
            return save_filled(self.model, self._keep(config), path, arrays)

    def read(self, config: CustomConfig, path: Path) -> dict[str, Array]:
        from wdport.families.user_functions import read_saved
        from wdport.models.keras_runtime import plain_float32

        with plain_float32():
            return read_saved(self.model, self._keep(config), path)

    def require_saved(self, config: CustomConfig, path: Path, saved: Document, same_release: bool) -> None:
        if difference := first_difference(saved, description(self._keep(config)), same_release):
            what = f"holds another model than {self.model} makes now: {difference}"
            raise MisfitError(path, what, "convert the checkpoint again, or restore the code that it was made with")

    def assume_inputs(self, shapes: Sequence[Sequence[int | None]]) -> None:
        self._input_shapes, self._open = tuple(tuple(shape) for shape in shapes), {}

    def described_by(self, variables: Mapping[str, Shape]) -> DescribedFamily:
        return DescribedFamily(self, variables)

    def signature(self, config: CustomConfig) -> Signature:
        """The inputs as stated; an input with channels last in the Keras model is recognised by its shape."""
        ports, outputs = self.told(), self._outputs()
        if self._input_shapes is None:
            self._keep(config)
        # A subclass of keras.Model has no symbolic inputs to take shapes from.
        if self._input_shapes is None or len(self._input_shapes) != len(ports):
            if self._open is None:
                from wdport.families.user_functions import open_axes

                self._open = open_axes(self._keep(config), ports)
            return Signature(ports, outputs, longer=self._open)
        inputs = tuple(
            _in_keras_order(port, shape, self.table.path) for port, shape in zip(ports, self._input_shapes, strict=True)
        )
        # A number that stands first is a fixed batch.
        free = {axis: 1 for port, shape in zip(inputs, self._input_shapes, strict=True)
                for axis, size in zip(port.keras_axes, shape, strict=True)
                if size is None and axis not in ("b", "_a")}  # fmt: skip
        return Signature(inputs, outputs, free=free)

    def other_layout(self) -> tuple[str, ...]:
        """The inputs with channels second in PyTorch and last in Keras, if the sizes of some do not tell this from the
        same order in both, and the user states neither; otherwise empty. After :meth:`signature`."""
        ports, shapes = self.told(), self._input_shapes or ()
        open_shapes = shapes if len(shapes) == len(ports) else [None] * len(ports)
        size_words = {axis: f"{size}" + (f"..{port.alone[axis]}" if axis in port.alone else "")
                 for port in ports for axis, size in port.sizes.items() if not axis.startswith("_")}  # fmt: skip
        texts = [_channels_last(text, port, shape, size_words)
                 for text, port, shape in zip(self.inputs, ports, open_shapes, strict=True)]  # fmt: skip
        return tuple(new or old for new, old in zip(texts, self.inputs, strict=True)) if any(texts) else ()

    def build_reference(self, config: CustomConfig, tensors: Mapping[str, Array], dtype: str) -> NoReturn:
        """Nothing here knows the PyTorch model: it is recorded as the user's own function builds it."""
        raise UsageError(self.table.path, "does not name the PyTorch model to compare with", "give `--reference`")

    def _require_model(self) -> None:
        if not self.model:
            fix = "add `keras: MODULE:FUNCTION`, or give `--keras-model`"
            raise UsageError(self.table.path, "does not name the Keras model", fix)

    def _outputs(self) -> tuple[Port, ...]:
        """The outputs whose axes the table states."""
        try:
            rules = output_rules(self.table.outputs)
        except AxisError as error:
            raise MisfitError(self.table.path, f"outputs: {error}", "see docs/inputs.md") from None
        return tuple(Port(str(index), str(rule)) for index, rule in enumerate(rules))

    def told(self) -> tuple[Input, ...]:
        try:
            return parse_inputs(self.inputs)
        except ValueError as error:
            raise MisfitError(self.table.path, str(error), "see docs/inputs.md") from None


class DescribedFamily(CustomFamily):
    """The user's own model as its converted file describes it: its Keras model is never built."""

    def __init__(self, family: CustomFamily, variables: Mapping[str, Shape]) -> None:
        super().__init__(family.table, family.model, family.reference, family.inputs)
        self._variables = dict(variables)
        self.assume_inputs(())

    def variables(self, config: CustomConfig) -> dict[str, Shape]:
        """The variables of the manifest."""
        return self._variables

    outline = variables

    def hint(self, config: CustomConfig) -> str:
        """No reason why the table does not fit: finding one builds the model."""
        return ""

    def require_saved(self, config: CustomConfig, path: Path, saved: Document, same_release: bool) -> None:
        """Nothing: the process of the port checks that its function builds the model of the file."""

    def _build(self, config: CustomConfig, dtype: str) -> NoReturn:
        raise AssertionError("the port is not built in this process")


def _channels_last(text: str, port: Input, shape: Sequence[int | None] | None, size_words: dict[str, str]) -> str:
    """The statement of an input whose second axis is last in Keras, if it may be so as well as in the stated order; ""
    if not. ``shape`` is that of the Keras model's input, if it is known; ``size_words`` are the sizes of the axes that
    have names so far."""
    name, _, stated = text.partition(":")
    orders = [(*port.axes[:1], *port.axes[1:]), (*port.axes[:1], *port.axes[2:], *port.axes[1:2])]
    repeated = len(set(port.axes)) < len(port.axes)
    if "->" in stated or port.kind != "float" or len(port.axes) < 3 or port.axes[0] != "b" or repeated:
        return ""
    sizes = [tuple(None if axis == "b" else port.sizes[axis] for axis in order) for order in orders]
    if any(not _fits(order, sizes[0] if shape is None else shape) for order in sizes):
        return ""
    letters = {2: "ct", 3: "chw", 4: "cdhw"}.get(len(port.axes) - 1, "cdefghi")
    called, left = [], []
    for axis, letter in zip(port.axes[1:], letters, strict=False):
        size = f"{port.sizes[axis]}" + (f"..{port.alone[axis]}" if axis in port.alone else "")
        word = letter if axis.startswith("_") else axis
        while size_words.setdefault(word, size) != size or word in called:
            word += letter
        called.append(word)
        left.append(f"{word}={size}")
    draw = stated.partition(",")[1:]
    return f"{name}: b {' '.join(left)} -> b {' '.join((*called[1:], called[0]))}{''.join(draw)}"


def _fits(sizes: Sequence[int | None], shape: Sequence[int | None]) -> bool:
    return len(sizes) == len(shape) and all(b in (None, a) for a, b in zip(sizes, shape, strict=True))


def _in_keras_order(port: Input, shape: Sequence[int | None], where: str) -> Input:
    """An input with the Keras model's order of axes, if only its shape determines it."""
    if port.axes != port.keras_axes:
        return port
    sizes = [None if axis == "b" else port.sizes[axis] for axis in port.axes]
    # As stated, or with the second axis last: PyTorch's channels first, Keras's channels last. Without a batch,
    # channels are the first axis.
    orders = [port.axes, (*port.axes[:1], *port.axes[2:], *port.axes[1:2])]
    orders += [] if "b" in port.axes or port.kind != "float" else [(*port.axes[1:], *port.axes[:1])]
    for axes in orders:
        expected = [None if axis == "b" else port.sizes[axis] for axis in axes]
        if _fits(expected, shape):
            return replace(port, keras_axes=tuple(axes))
    what = f"input {port.name} is {tuple(sizes)}, where the Keras model takes {tuple(shape)}"
    # Axes in another order have the same sizes, of which Keras may leave some open.
    counts = [Counter(size for size in side if size is not None) for side in (sizes, shape)]
    moved = len(shape) == len(sizes) and counts[1] <= counts[0]
    fix = (
        "state both orders, as in 'x: b c=3 h=48 w=48 -> b h w c'" if moved else "state the sizes that both models take"
    )
    raise MisfitError(where, what, fix)


if TYPE_CHECKING:  # checked by mypy

    def _role(family: CustomFamily) -> OwnFamily:
        return family
