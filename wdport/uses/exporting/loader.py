"""Load a file that wdport exported as a callable object. Copy this module to wherever the file is used.

It needs Python, jax, numpy, and flatbuffers (with which jax reads exported programs), but neither wdport nor Keras.

    denoiser = load("model.stablehlo")
    prediction = denoiser(state, time)               # (b, *shape), (b,) in the network's time units

    sampler = load("sampler.stablehlo")
    state, decoded = sampler(seed, range(64))        # the samples of wdport.sample with this seed
    state, decoded = sampler.start_from(x_T, noise)  # noise (slots, b, *shape), for samplers that add some

    network = load("network.stablehlo")
    logits = network(input_ids, attention_mask)      # the model's inputs and outputs, in Keras's order of axes

    autoencoder = load("vae.stablehlo")              # several functions, by the names in facts["programs"]
    video = autoencoder["decode"](latents)

Denoisers and samplers of models with a conditioning input, such as labels or a scale, take it (b, ...) as their last
argument, ``condition``; ``facts["condition"]`` describes it.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike, fspath
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

FORMAT = 1
Facts = dict[str, Any]
"""JSON values."""

Pair = tuple[jax.Array, "jax.Array | None"]


class Program(NamedTuple):
    """A function of weights and inputs, and the shapes of all of them, flat."""

    call: Callable[..., Any]
    shapes: list[tuple[int, ...]]


class ArtifactError(Exception):
    """A file is not an artifact, or does not run here; one line."""


ArtefactError = ArtifactError
"""Its former name."""


class Artifact:
    """``facts`` about the model, programs by name, and the weights that are each program's first arguments."""

    def __init__(self, facts: Facts, programs: dict[str, Program], weights: tuple[jax.Array, ...]) -> None:
        self.facts = facts
        self._programs = programs
        self._weights = weights

    def _shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one sample's state, the program's first input after the weights."""
        return self._programs[name].shapes[len(self._weights)][1:]

    def _state(self, name: str, value: ArrayLike, *shape: int | None) -> jax.Array:
        """Return ``value`` in the state's dtype; raises ``ValueError`` unless it has this shape, None for any size."""
        value_shape = np.shape(value)
        if len(value_shape) != len(shape) or any(
            size not in (None, got) for size, got in zip(shape, value_shape, strict=True)
        ):
            expected_shape = ", ".join("b" if size is None else str(size) for size in shape)
            raise ValueError(f"{name} has shape {value_shape}, not ({expected_shape})")
        return jnp.asarray(value, self.facts["dtype"])

    def _condition(self, condition: ArrayLike | None, labels: ArrayLike | None, count: int) -> list[jax.Array]:
        """Return the condition as program inputs, none for a model without one; raises ``ValueError`` for invalid
        values. ``labels`` is another name of it."""
        classes: Any = self.facts.get("classes")
        about = self.facts.get("condition") or (classes and {"name": "labels", "kind": "class", "shape": []})
        values = labels if condition is None else condition
        if values is None and not about:
            return []
        if values is None or not about:
            raise ValueError(f"{about['name']} is missing" if about else "this model has no condition")
        array, shape = np.asarray(values), (count, *about["shape"])
        if about["kind"] == "class":
            if array.shape != shape or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= classes:
                raise ValueError(f"labels are not ({count},) whole numbers from 0 to {classes - 1}")
            return [jnp.asarray(array, jnp.int32)]
        if array.shape != shape or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise ValueError(f"{about['name']} is not {shape} of finite numbers")
        if about["kind"] == "positive" and array.min() <= 0:
            raise ValueError(f"{about['name']} is not positive")
        return [jnp.asarray(array, self.facts["dtype"])]

    def _run(self, name: str, *inputs: ArrayLike) -> Any:
        return self._programs[name].call(self._weights, *inputs)


class Network(Artifact):
    """A file that ``wdport export --what network`` wrote.

    ``facts["programs"]`` has the inputs and outputs of every function: names, dtypes, and shapes, in which sizes that
    may differ between calls are text.
    """

    def __call__(self, *inputs: ArrayLike) -> Any:
        """Return the model's output, or a tuple of them; raises ``TypeError`` for a file of several functions."""
        if list(self._programs) != ["call"]:
            names = ", ".join(sorted(self._programs))
            raise TypeError(f"this file has the functions {names}: choose one by its name in brackets")
        return self["call"](*inputs)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return the function of this name, which maps arrays to one array or a tuple of them; raises ``KeyError``."""
        specs = self.facts["programs"][name]["inputs"]

        def call(*inputs: ArrayLike) -> Any:
            with _bits(self.facts):
                arrays = _inputs(name, specs, inputs)
                try:
                    outputs = self._run(name, *arrays)
                except ValueError as error:  # in which jax explains at length which sizes do not fit
                    shapes = ", ".join(str(array.shape) for array in arrays)
                    raise ValueError(f"{name} takes {_shapes(specs)}, not {shapes}") from error
            return outputs[0] if len(outputs) == 1 else tuple(outputs)

        return call


class Denoiser(Artifact):
    """A file that ``wdport export --what denoiser`` wrote."""

    def __call__(
        self, state: ArrayLike, time: ArrayLike, condition: ArrayLike | None = None, *, labels: ArrayLike | None = None
    ) -> jax.Array:
        """Return the prediction (b, *shape): noise or clean states, according to ``facts["target"]``.

        Args:
            state: (b, *shape), in standard units.
            time: (b,), in the network's time units.
            condition: (b, ...), the condition of each sample, for a model with one.
            labels: another name of it.
        """
        facts = self.facts
        with _bits(facts):
            state = self._state("state", state, facts["batch"], *self._shape("denoise"))
            prediction: jax.Array = self._run(
                "denoise", state, self._state("time", time, len(state)), *self._condition(condition, labels, len(state))
            )
            return prediction


class Sampler(Artifact):
    """A file that ``wdport export --what sampler`` wrote."""

    def __call__(
        self, seed: int, indices: ArrayLike, condition: ArrayLike | None = None, *, labels: ArrayLike | None = None
    ) -> Pair:
        """Return states (b, *shape) and their decoded values, None if they are not decoded.

        Args:
            seed: 0 to 2^32 - 1.
            indices: (b,), indices of the samples. With the seed they determine every sample.
            condition: (b, ...), the condition of each sample, for a model with one.
            labels: another name of it.
        """
        numbers = np.asarray(indices)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or self.facts["batch"] not in (None, len(numbers)):
            raise ValueError(f"indices are not integers of shape ({self.facts['batch'] or 'b'},)")
        if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
            raise ValueError(f"invalid seed {seed!r}: expected an integer from 0 to 2^32 - 1")
        if numbers.size == 0 or numbers.min() < 0 or numbers.max() >= 2**32:
            raise ValueError("expected at least one index, each from 0 to 2^32 - 1")
        with _bits(self.facts):
            condition_inputs = self._condition(condition, labels, len(numbers))
            return _pair(self._run("drawn", np.uint32(seed), numbers.astype(np.uint32), *condition_inputs))

    def start_from(
        self, state: ArrayLike, noise: ArrayLike | None = None, condition: ArrayLike | None = None,
        *, labels: ArrayLike | None = None,
    ) -> Pair:  # fmt: skip
        """Sample from x_T ``state`` (b, *shape) and a ``noise`` tape (slots, b, *shape), one slot per noisy step."""
        facts, slots = self.facts, self.facts["sampler"]["slots"]
        if (noise is None) == bool(slots):
            raise ValueError(f"this sampler takes {slots or 'no'} slots of noise")
        shape = self._shape("given")
        with _bits(facts):
            state = self._state("state", state, facts["batch"], *shape)
            tape = [] if noise is None else [self._state("noise", noise, slots, len(state), *shape)]
            return _pair(self._run("given", state, *tape, *self._condition(condition, labels, len(state))))


def load(path: str | PathLike[str], device: jax.Device | None = None) -> Any:
    """Return a :class:`Network`, :class:`Denoiser` or :class:`Sampler` with weights on ``device``.

    Raises :class:`ArtifactError`.
    """
    file = fspath(path)
    try:
        with zipfile.ZipFile(file) as archive:
            facts = json.loads(archive.read("facts.json"))
            if facts["format"] != FORMAT:
                raise ArtifactError(f"{file}: has format {facts['format']}, this loader reads {FORMAT}")
            digests = json.loads(archive.comment)["manifest"]["members"]
            names = [name for name in archive.namelist() if name.endswith(".program")]
            serialised = {name.removesuffix(".program"): archive.read(name) for name in names}
            for name in ["facts.json", *names]:
                _require(name, hashlib.sha256(archive.read(name)), digests)
            device = device or jax.devices()[0]
            _check_platform(file, facts, device)
            with _bits(facts):
                programs = {name: _program(data) for name, data in serialised.items()}
                weights = _weights(archive, facts["weights"], device, digests)
            kind = {"denoiser": Denoiser, "sampler": Sampler, "network": Network}[facts["what"]]
            return kind(facts, programs, weights)
    except (ArtifactError, MemoryError):
        raise
    except OSError as error:
        raise ArtifactError(f"{file}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # of zipfile, zlib, json and jax, which raise many for a damaged file
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise ArtifactError(f"{file}: is not a model that wdport exported, or is damaged ({why})") from error


def _check_platform(file: str, facts: Facts, device: jax.Device) -> None:
    """Raise :class:`ArtifactError` unless ``device`` has an exported platform; for jax "cuda" and "rocm" are "gpu"."""
    names = {device.platform, "cuda", "rocm"} if device.platform == "gpu" else {device.platform}
    if not names & set(facts["platforms"]):
        platforms = ", ".join(facts["platforms"])
        raise ArtifactError(f"{file}: was exported for {platforms}, this device is {device.platform}; export it again")


def _program(data: bytes) -> Program:
    try:
        # jit, so that the call is compiled once for each shape.
        program = jax.export.deserialize(bytearray(data))
        return Program(jax.jit(program.call), [aval.shape for aval in program.in_avals])
    except ImportError:
        raise ArtifactError("jax reads exported programs with flatbuffers: pip install flatbuffers") from None


def _require(name: str, digest: Any, digests: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for a member that was not written by wdport."""
    if digest.hexdigest() != digests[name]:
        raise ValueError(f"{name} was changed")


def _weights(
    archive: zipfile.ZipFile, listed: list[Facts], device: jax.Device, digests: Mapping[str, str]
) -> tuple[jax.Array, ...]:
    weights, digest = [], hashlib.sha256()
    with archive.open("weights.bin") as member:
        for entry in listed:
            dtype, shape = jnp.dtype(entry["dtype"]), tuple(entry["shape"])
            data = member.read(dtype.itemsize * int(np.prod(shape, dtype=np.int64)))
            digest.update(data)
            weights.append(jax.device_put(np.frombuffer(data, dtype).reshape(shape), device))
        # Also compares the CRC, which zipfile does at the end of a member.
        if member.read(1):
            raise ValueError("weights are left over")
    _require("weights.bin", digest, digests)
    return tuple(weights)


def _inputs(name: str, facts: Sequence[Facts], values: Sequence[ArrayLike]) -> list[jax.Array]:
    """Return inputs in the dtypes of a function; raises ``ValueError`` for what it does not take."""
    if len(values) != len(facts):
        raise ValueError(f"{name} takes {len(facts)} inputs, {_shapes(facts)}, not {len(values)}")
    return [_input(spec, value) for spec, value in zip(facts, values, strict=True)]


def _input(facts: Facts, value: ArrayLike) -> jax.Array:
    """Return one input; sizes that may differ between calls are checked by the program."""
    array, shape, dtype = np.asarray(value), facts["shape"], jnp.dtype(facts["dtype"])
    # strict=False: the number of axes is compared next.
    fixed = all(isinstance(size, str) or size == got for size, got in zip(shape, array.shape, strict=False))
    if array.ndim != len(shape) or not fixed:
        raise ValueError(f"{_shapes([facts])} has shape {array.shape}")
    # Some networks take a time as an integer, their samplers as a floating-point number: both may be given to either.
    accepted = (np.integer, np.bool_ if dtype.kind == "b" else np.floating)
    if not any(jnp.issubdtype(array.dtype, kind) for kind in accepted):
        raise ValueError(f"{facts['name']} has dtype {array.dtype}, not {dtype}")
    # A cast of int64 to int32 would wrap around without an error.
    with np.errstate(invalid="ignore"):  # a cast of NaN
        same = np.array_equal(array.astype(dtype), array)
    if not same and "i" in (dtype.kind, array.dtype.kind):
        raise ValueError(f"{facts['name']} has values that {dtype} does not hold")
    return jnp.asarray(array, dtype)


def _shapes(facts: Sequence[Facts]) -> str:
    return ", ".join(f"{spec['name']} ({', '.join(map(str, spec['shape']))})" for spec in facts)


def _pair(outputs: Sequence[jax.Array]) -> Pair:
    return outputs[0], outputs[1] if len(outputs) > 1 else None


def _bits(facts: Facts) -> AbstractContextManager[object]:
    """Enable 64-bit types if the model has them, whatever the calling program has set."""
    bits: AbstractContextManager[object] = jax.enable_x64(facts["dtype"] == "float64")
    return bits
