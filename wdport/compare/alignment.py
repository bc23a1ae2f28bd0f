"""Which layers of a reference and of a port are compared, in which order and why some are not; their hyper-
parameters in that order.

The inputs are taps and the two models; nothing is run here. Paddings and axes are compared if the shapes of the layers'
inputs are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from wdport.base.errors import WdportError
from wdport.compare.calls import Calls, layer_of, leaves
from wdport.compare.candidate import Candidate
from wdport.compare.findings import Finding, notice
from wdport.compare.pairs import Pair
from wdport.compare.reference import Reference
from wdport.compare.results import TapResult
from wdport.compare.setting_values import Setting, SettingsReport
from wdport.compare.settings import compare_pair
from wdport.compare.taps import (
    Tap,
    align,
    called_otherwise,
    copies_of,
    every_call,
    is_one_layer,
    left_out,
    nearest,
    stated_by,
    unconverted,
    watched,
    without_module,
)
from wdport.mapping.axes import Shape
from wdport.mapping.kinds import KINDS
from wdport.mapping.rows import ConstantRow
from wdport.models.interface import KerasLayer
from wdport.models.keras_runtime import layers_by_path
from wdport.recording.observation import Observation
from wdport.recording.runs import scalar_fed

if TYPE_CHECKING:
    import torch


class Alignment:
    """The taps of two models: by the table, then by the calls that both sides make.

    Attributes:
        taps: the layers that are compared; after :meth:`settle` one for every call, in the order of the computation.
        modules: the reference's modules by path; none if it is a recording.
        outputs_alone: whether the table has no row of any of the layers, so that only outputs are compared.
        unconverted: modules without tensors, and the Keras layer that the port therefore lacks.
        without_module: optional rows for which the reference has no module.
        left_out: layers that are compared only by their parts, with the reason.
        reused: layers without weights that are compared only where their outputs are used, with the reason.
        timed: taps that are fed one scalar per sample, with the position of that input.
        settings: the hyper-parameters of both sides.
        later: taps of calls that the first case does not make, such as those of the chunks of a longer video.
    """

    def __init__(self, reference: Reference, candidate: Candidate) -> None:
        table, signature, features = candidate.table, candidate.signature, candidate.features
        self._layers = layers_by_path(candidate.models["float64"])
        self._inputs, self._fills = len(signature.inputs), table.fills
        taps = align(table, reference.names, self._layers, features, signature.axes, signature.words.one)
        modules = reference.modules
        # A shared module has several paths, and the table may name any of them.
        self.modules = dict(modules["float64"].named_modules(remove_duplicate=False)) if modules else {}
        self.taps = stated_by(taps, self.modules)
        self.outputs_alone = bool(self._layers) and not taps and not is_one_layer(table)
        self._reference = reference
        self._unused: dict[tuple[tuple[str, int], ...], Sequence[str]] = {}  # by modules and their numbers of calls
        self._copies = copies_of(table, self.modules, reference.names, self._layers, features)
        self.unconverted = unconverted(table, reference.names, self._layers, features)
        self.without_module = without_module(table, reference.names, features)
        self.left_out: dict[Tap, str] = {}
        self.reused: dict[Tap, str] = {}
        self.later: set[str] = set()
        self._once: list[Tap] = []
        self.timed: dict[str, int] = {}
        self.settings = SettingsReport(note="" if self.modules else "the reference is a recording, which states none")

    @property
    def watched(self) -> set[str]:
        """The port's layers to probe."""
        return {*watched(self.taps), *(path for paths in self._copies.values() for path in paths)}

    @property
    def observed(self) -> list[str]:
        """The reference's modules to observe."""
        return [*(tap.reference for tap in (*self.taps, *self.left_out)), *self.unconverted]

    @property
    def not_compared(self) -> dict[str, str]:
        """The layers without any measurement, each with the reason."""
        absent = {name: f"no tensors, and no {path} in Keras" for name, path in self.unconverted.items()}
        return {**{tap.reference: why for tap, why in {**self.left_out, **self.reused}.items()}, **absent}

    def compare_settings(self, observation: Observation, shapes: Calls) -> None:
        """Compare the settings of the layers of every tap; with ``shapes``, the port's calls, paddings and axes too."""
        if self.modules:
            calls = observation.calls, shapes
            self.settings = compare_settings(self.taps, self.modules, self._layers, *calls, fills=self._fills)

    def settle(self, observation: Observation, shapes: Calls) -> tuple[dict[str, TapResult], list[Finding]]:
        """Determine from the calls of both sides which calls are compared, their order and their callers.

        Returns an empty result for every tap, and the findings on calls.
        """
        theirs, ours = callers(observation.calls), callers(shapes)
        self.left_out = left_out(self.taps, theirs, ours)
        weightless = [tap for tap in self.taps if tap not in self.left_out and self._has_no_weights(tap)]
        self.reused = called_otherwise(weightless, theirs, ours)
        complete = len(observation.inputs) == self._inputs
        self.timed = scalar_fed(observation.inputs, observation.calls) if complete else {}
        self._once = [tap for tap in self.taps if tap not in self.left_out and tap not in self.reused]
        self.taps, findings = self._every_call(observation, ours)
        self.compare_settings(observation, shapes)
        return self._results(self.taps, ours), findings

    def _every_call(self, observation: Observation, ours: Mapping[str, str]) -> tuple[list[Tap], list[Finding]]:
        """As :func:`every_call`; calls whose outputs the reference does not use, which the port may leave out, are no
        fault."""
        theirs = callers(observation.calls)
        taps, faults = every_call(self._once, theirs, ours, self._copies)
        if not faults:
            return taps, faults
        numbers = Counter(map(layer_of, theirs))
        key = tuple((fault.subject, numbers[fault.subject]) for fault in faults)
        if key not in self._unused:
            self._unused[key] = self._reference.unused_calls(observation, [name for name, _ in key])
        unused = {name: [call for call in self._unused[key] if layer_of(call) == name] for name, _ in key}
        used = {call: caller for call, caller in theirs.items() if call not in unused.get(layer_of(call), ())}
        remaining = {fault.subject for fault in every_call(self._once, used, ours, self._copies)[1]}
        compared = {call: caller for call, caller in theirs.items() if call in used or layer_of(call) in remaining}
        taps, _ = every_call(self._once, compared, ours, self._copies)
        return taps, [
            fault if fault.subject in remaining
            else notice(f"{fault.detail}: no output depends on {', '.join(unused[fault.subject])}", fault.subject)
            for fault in faults
        ]  # fmt: skip

    def _has_no_weights(self, tap: Tap) -> bool:
        """Whether neither side of a tap has parameters or buffers, such as those of a pooling."""
        module, kind = self.modules.get(tap.reference), KINDS.get(tap.kind)
        has_tensors = not (kind and not kind.parts) if module is None else bool(module.state_dict())
        paths = tap.stack or (tap.candidate,)
        return not has_tensors and not any(self._layers[path].weights for path in paths)

    def extend(self, observation: Observation, shapes: Calls) -> tuple[dict[str, TapResult], list[Finding]]:
        """Add the calls that a later case makes and none before did; returns as :meth:`settle`."""
        ours = callers(shapes)
        taps, findings = self._every_call(observation, ours)
        references = {tap.reference for tap in self.taps}
        more = [tap for tap in taps if tap.reference not in references]
        self.taps += more
        self.later |= {tap.reference for tap in more}
        return self._results(more, ours), findings

    @property
    def always(self) -> list[Tap]:
        """The taps of the calls that the first case makes."""
        return self.of({})

    def of(self, calls: Calls, port: Calls = MappingProxyType({}), fewer: bool = False) -> list[Tap]:
        """The taps of a case in which the reference and the port make these calls; with ``fewer``, in which an optional
        input is left out, those that neither calls need not run."""
        return [tap for tap in self.taps if tap.reference in calls
                or not (tap.reference in self.later or (fewer and tap.candidate not in port))]  # fmt: skip

    def _results(self, taps: Sequence[Tap], ours: Mapping[str, str]) -> dict[str, TapResult]:
        references = {tap.candidate: tap.reference for tap in self.taps}
        results = {}
        for tap in taps:
            caller = references.get(nearest(tap.candidate, ours, references), "")
            results[tap.reference] = TapResult(tap.reference, tap.candidate, tap.part, caller=caller)
        return results

    @contextmanager
    def settings_in_errors(self) -> Iterator[None]:
        """Add the settings that differ to an error raised inside, as its most likely cause."""
        try:
            yield
        except WdportError as error:
            differing = self.settings.of("differs")
            if differ := [f"{setting.reference} -> {setting.candidate}: {setting.text}" for setting in differing]:
                error.details = (*(error.details or (f"{error.where}: {error.what}",)), *differ)
            raise


def callers(calls: Calls) -> dict[str, str]:
    """The innermost enclosing call, by call."""
    return {name: call.caller for name, call in calls.items()}


MASKED = "mask_zero True passes a mask to later layers, and no module of the reference is compared with this layer"


def compare_settings(
    taps: Sequence[Tap], modules: Mapping[str, torch.nn.Module], layers: Mapping[str, KerasLayer],
    reference: Calls | None = None, port: Calls | None = None, fills: Sequence[ConstantRow] = (),
) -> SettingsReport:  # fmt: skip
    """Compare the settings of the two layers of every tap.

    Args:
        taps: the aligned layers, in the order of the findings.
        modules: the reference's, by path.
        layers: the port's, by path.
        reference: calls of the reference's modules, for the shapes of their inputs and outputs.
        port: calls of the port's layers, with arrays or with shape placeholders.
        fills: rows of variables that get a constant: a bias of zeros is none.
    """
    last = _channels_last(layers)
    count, compared = 0, 0
    settings: dict[tuple[str, str], Setting] = {}
    unread: dict[str, None] = {}
    for tap in taps:
        module = modules.get(layer_of(tap.reference))
        for path in tap.stack or (layer_of(tap.candidate),):
            if module is None or path not in layers:
                continue
            pair = Pair(tap.kind, module, layers[path], tap.layout, last=last)
            if path == layer_of(tap.candidate) and len(tap.stack) < 2:
                pair = _with_shapes(pair, tap, reference or {}, port or {})
            try:
                pair_count, differing = compare_pair(pair)
            # A user's own class may have any values.
            except (TypeError, ValueError, AttributeError, IndexError):
                unread[layer_of(tap.reference)] = None
                continue
            count, compared = count + bool(pair_count), compared + pair_count
            for difference in differing:
                if difference.name == "use_bias" and _is_zero(f"{path}/bias", fills):
                    continue
                key = (path, difference.text)
                settings.setdefault(key, replace(difference, reference=layer_of(tap.reference), candidate=path))
    compared_paths = {path for tap in taps for path in tap.stack or (layer_of(tap.candidate),)}
    for path, layer in layers.items():
        # An Embedding's mask changes layers that follow it, so it matters even where the embedding itself is not
        # compared.
        if getattr(layer, "mask_zero", False) is True and path not in compared_paths:
            settings[path, "mask_zero"] = Setting("mask_zero", None, True, "differs", MASKED, candidate=path)
    return SettingsReport(count, compared, tuple(settings.values()), unread=tuple(unread))


def _is_zero(variable: str, fills: Sequence[ConstantRow]) -> bool:
    """Whether the table fills a variable with zeros."""
    return any(fill.fill == "zeros" and fill.keras.match(variable) is not None for fill in fills)


def _with_shapes(pair: Pair, tap: Tap, reference: Calls, port: Calls) -> Pair:
    """Add the shapes of each side's first input and of the reference's output."""
    theirs, ours = reference.get(tap.reference), port.get(tap.candidate)
    fed = _first(theirs.inputs) if theirs is not None else ()
    output = _first(theirs.outputs) if theirs is not None else ()
    port_input = _first(ours.inputs) if ours is not None else ()
    if len(output) > 2 and getattr(pair.layer, "data_format", "") != "channels_first":
        # The reference is channels-first; the port's output shape is compared with it in the port's order.
        output = (output[0], *output[2:], output[1])
    return replace(pair, fed=fed, input_shape=port_input, output_shape=output if len(output) == len(port_input) else ())


def _first(values: Sequence[object]) -> Shape:
    arrays = leaves(list(values))
    return tuple(int(size) for size in getattr(arrays[0], "shape", ())) if arrays else ()


def _channels_last(layers: Mapping[str, KerasLayer]) -> bool | None:
    """Whether all layers with windows are channels-last; ``None`` if there are none, or of both kinds."""
    windowed = [layer for layer in layers.values() if hasattr(layer, "kernel_size") or hasattr(layer, "pool_size")]
    formats = {str(layer.data_format) for layer in windowed if getattr(layer, "data_format", None)}
    return formats == {"channels_last"} if len(formats) == 1 else None
