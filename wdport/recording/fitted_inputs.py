"""Inputs and cases as a network takes them: by name, with usual ids, with a key for every query."""

from __future__ import annotations

import inspect
import itertools
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

import numpy as np

from .calls import cast
from .cases import CASES, HIDDEN, SEEDS, Case, MakeInputs
from .errors import Refusal, one_line
from .float64 import lifted
from .inner_calls import KEYLESS, is_attention
from .inputs import Input, given
from .nested import leaves
from .runs import record, run
from .sample_rows import by_sample
from .torch_functions import functions, highest_precision
from .watching import parameter_names

if TYPE_CHECKING:
    from torch.nn import Module

    from .shared_types import Array


def by_parameter(inputs: Sequence[Input], parameters: Sequence[str]) -> list[str] | None:
    """The parameter of a function that takes each input: that of its name or, for other inputs, the one in its place.
    ``None`` if there are no such names, or they contradict the places."""
    places = [*parameters, *([""] * len(inputs))]
    chosen = [spec.name if spec.name in parameters else place for spec, place in zip(inputs, places)]
    named = any(spec.name in parameters for spec in inputs)
    return chosen if named and all(chosen) and len(set(chosen)) == len(chosen) else None


def call_by_name(module: Module, inputs: Sequence[Input]) -> None:
    """Let the ``forward`` of a module take these inputs in their order, those that have names of its parameters by
    name; raises :class:`Refusal` if one is optional, not the last, and has no such name."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    try:
        every = inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        every = MappingProxyType({})
    chosen = by_parameter(inputs, [name for name, parameter in every.items() if parameter.kind in kinds])
    optional = [spec.name for spec in inputs if spec.optional]
    in_place = chosen is None or chosen == parameter_names(module)[: len(inputs)]
    if in_place and optional == [spec.name for spec in inputs[len(inputs) - len(optional) :]]:
        return
    if chosen is None:
        fix = "name the inputs as its parameters, or state this one last"
        raise Refusal(2, f"input {optional[0]}", "can only be left out by name, and forward has no such parameter", fix)
    parameters, forward = dict(zip([spec.name for spec in inputs], chosen)), module.forward

    def by_name(*args: object, **kwargs: object) -> object:
        names = [parameters[spec.name] for spec in given(inputs, len(args))]
        return forward(**dict(zip(names, args)), **kwargs)

    stated = [every[name].replace(kind=kinds[0], default=inspect.Parameter.empty) for name in chosen]
    stated[-1] = stated[-1].replace(default=every[chosen[-1]].default)
    by_name.__signature__ = inspect.Signature(stated)  # type: ignore[attr-defined]
    module.forward = by_name


USUAL_IDS = (1, 2, 3)
"""Ids that vocabularies usually have for padding, the beginning and the end, besides 0."""


def with_ids(inputs: Sequence[Input], module: Module) -> tuple[Input, ...]:
    """These inputs with the ids that the module may treat specially: what its configuration calls ``..._token_id``, the
    ``padding_idx`` of its layers, all other integers that its layers keep, such as the sizes of embeddings, and
    :data:`USUAL_IDS`, since its code may have the id of the padding as a constant."""
    config = getattr(module, "config", None)
    stated = [value for name, value in getattr(config, "__dict__", {}).items() if str(name).endswith("_token_id")]
    stated += [getattr(part, "padding_idx", None) for part in module.modules()]
    stored = [value for part in module.modules() for name, value in vars(part).items() if not name.startswith("_")]
    # Not isinstance, for which a bool is an int as well.
    ids = dict.fromkeys([*(leaf for leaf in leaves([*stated, *stored]) if type(leaf) is int), *USUAL_IDS])
    return tuple(replace(spec, ids=(*spec.ids, *ids)) if spec.kind == "int" else spec for spec in inputs)


def with_keys(
    inputs: Sequence[Input], module: Module, cases: Sequence[Case],
    draw: Callable[[Case, Sequence[Input]], tuple[Array, ...]],
) -> tuple[Input, ...]:  # fmt: skip
    """These inputs with masks under which every query of an attention sees a key, if some see none under others:
    libraries, and releases of one library, compute different values for such a query, or NaN. Whether true or false
    marks what is left out, each mask's runs tell."""
    masks = [index for index, spec in enumerate(inputs) if spec.draw == "mask"]
    attention = any(map(is_attention, module.modules()))

    def keyless(drawn: Sequence[Input]) -> bool:
        # Extreme samples with NaN are left out anyway.
        return any(_keyless(module, draw(case, drawn), attention or not case.extremes) for case in cases)

    if not masks or not keyless(inputs):
        return tuple(inputs)
    chosen = inputs
    for right, hides in itertools.product((False, True), itertools.product((False, True), repeat=len(masks))):
        chosen = list(inputs)
        for index, value in zip(masks, hides):
            chosen[index] = replace(inputs[index], hides=value, right=right)
        if not keyless(chosen):
            return tuple(chosen)
    if not attention:  # other code may have NaN for another reason, and is refused when it runs
        return tuple(inputs)
    return tuple(replace(spec, hides=False, right=True) if spec.draw == "mask" else spec for spec in inputs)


def _keyless(module: Module, inputs: tuple[Array, ...], nan: bool) -> bool:
    """Whether queries of attention see no key or, if ``nan``, the outputs have NaN where the inputs have none."""
    import torch

    notes: list[str] = []

    def watch(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        if getattr(function, "__name__", "") == "scaled_dot_product_attention":
            mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
            if mask is not None and bool((~mask if mask.dtype is torch.bool else mask < -1e30).all(-1).any()):
                notes.append(f"attention{KEYLESS}")
        return function(*args, **kwargs)

    # What the module does not accept is reduced by finite_case, or refused when it runs.
    with suppress(Exception), highest_precision(), lifted(), functions(watch):
        outputs, _ = record(module, inputs, None, notes.append)
        unknown = not any(np.isnan(array).any() for array in inputs) and any(np.isnan(array).any() for array in outputs)
        return (nan and unknown) or any(note.endswith(KEYLESS) for note in notes)
    return any(note.endswith(KEYLESS) for note in notes)


def mask_notes(inputs: Sequence[Input]) -> list[str]:
    """What :func:`with_keys` has found, a sentence for every mask."""
    return [
        f"{str(spec.hides).lower()} in {spec.name} means left out; its masks leave out "
        f"{'only what follows a position' if spec.right else 'some, never all'}, since queries would see no key"
        for spec in inputs
        if spec.hides is not None
    ]


def finite_case(module: Module, case: Case, inputs_of: Callable[[Case], tuple[Array, ...]]) -> Case:
    """The case with only those extreme samples that the float64 module accepts and turns into finite values, for
    unusual ones only finite outputs: few modules have a meaning for missing values, or for a fully masked sample.
    :data:`HIDDEN` replaces missing values that are not accepted, or of which there are none."""
    if not case.extremes:
        return case
    places = range(case.samples)

    def finite(extremes: tuple[str, ...]) -> list[bool]:
        flags = _finite_samples(module, inputs_of(replace(case, extremes=extremes)), case.samples, case.extreme)
        if flags is not None:
            return flags
        # One sample may make the module reject all of them.
        single = [tuple(extremes[index] if index == sample else "" for index in places) for sample in places]
        tried = [_finite_samples(module, inputs_of(replace(case, extremes=kinds)), case.samples, case.extreme)
                 for kinds in single]  # fmt: skip
        return [flags is not None and all(flags) for flags in tried]

    others = [tuple(other if extreme == "missing" else extreme for extreme in case.extremes)
              for other in ("missing", HIDDEN, "")]  # fmt: skip
    inputs = [inputs_of(replace(case, extremes=extremes)) for extremes in others]
    changed = [extremes for extremes, arrays in zip(others, inputs)
               if any(a.tobytes() != b.tobytes() for a, b in zip(arrays, inputs[-1]))]  # fmt: skip
    chosen, flags = case.extremes, [True] * case.samples
    for chosen in changed or [case.extremes]:
        flags = finite(chosen)
        if all(flag or extreme not in ("missing", HIDDEN) for flag, extreme in zip(flags, chosen)):
            break
    return replace(case, extremes=tuple(extreme if flag else "" for extreme, flag in zip(chosen, flags)))


def _finite_samples(module: Module, inputs: tuple[Array, ...], count: int, inside: bool) -> list[bool] | None:
    """By sample, whether the outputs of the module and, if ``inside``, of all its submodules are finite; ``None`` if
    samples cannot be distinguished, or the module does not accept these inputs."""
    try:
        with highest_precision(), lifted():
            outputs, calls = record(module, inputs) if inside else (run(module, inputs), {})
    except Exception:
        return None
    finite = [np.isfinite(array) for group in (outputs, *(call.outputs for call in calls.values())) for array in group]
    finite = [mask for mask in finite if not np.all(mask)]
    rows = [by_sample(mask, count) for mask in finite]
    if any(row is None for row in rows):
        return None
    return [all(row is None or bool(np.all(row[index])) for row in rows) for index in range(count)]


def cases_of(cases: Sequence[Case], make_inputs: MakeInputs | None, drawn: Sequence[Input] = ()) -> list[Case]:
    """The cases that can be drawn: a user's function draws neither extreme nor unusual values; ``drawn`` inputs without
    a batch axis have one sample."""
    if make_inputs is not None:
        return [replace(case, extremes=()) for case in cases if not case.extreme]
    if not drawn or any("b" in spec.axes for spec in drawn):
        return list(cases)
    return unbatched(cases)


def unbatched(cases: Sequence[Case]) -> list[Case]:
    """The cases for inputs of which none has a batch axis, each kind of extreme values with a seed of its own."""
    apart = []
    for case in cases:
        apart.append(replace(case, batched=False, extremes=case.extremes[:1]))
        for index, kind in enumerate(case.extremes[1:], start=1):
            seed = case.seed + SEEDS // 2 + len(CASES) * index
            apart.append(replace(case, seed=seed, batched=False, extremes=(kind,)))
    return apart


def checked_inputs(
    make_inputs: MakeInputs | None, case: Case, target: str, drawn: Sequence[Input] = ()
) -> tuple[Array, ...]:
    """The inputs of one case as arrays, floating-point ones in float64; those of ``make_inputs``, or else ``drawn``."""
    if make_inputs is None and not drawn:
        fix = "state them, such as --input 'x: b 3 48 48', or return (module, make_inputs)"
        raise Refusal(2, target, "the model's inputs are not known", fix)
    try:
        seed, batch, scale = case.seed, case.batch, case.scale
        called = [spec for spec in drawn if batch > 1 or not spec.optional]
        arrays = ([spec.make(seed, batch, scale, case.extremes) for spec in called] if make_inputs is None
                  else [np.asarray(value) for value in make_inputs(seed, batch, scale)])  # fmt: skip
    except Exception as error:
        raise Refusal(4, target, f"make_inputs raises {one_line(error)}", "correct it") from error
    for index, value in enumerate(arrays):
        axes = drawn[index].axes if index < len(drawn) else ("b",)
        sizes = value.shape[axes.index("b") :][:1] if "b" in axes else (case.batch,)
        if sizes != (case.batch,) or value.dtype.kind not in "fiub":
            what = f"make_inputs gives {value.dtype} {value.shape} for a batch of {case.batch}"
            raise Refusal(4, target, what, "put the batch on axis 0 of every array")
    return cast(tuple(arrays), np.float64)
