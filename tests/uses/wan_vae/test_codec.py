"""Chunks of any size give what the library gives frame by frame, with one program; bytes, dtypes, devices, limits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import keras
import numpy as np
import pytest

import wdport
from tests.uses.wan_vae.make import OLD, VARIANTS, Fields, random_fields, save, tensors_of
from wdport.base.jax_settings import fast_compile
from wdport.compare.measure import relative_l2
from wdport.models.keras_runtime import set_variable, variables_by_path
from wdport.nets import chunked
from wdport.nets.chunked import scanned
from wdport.recording.float64 import lifted
from wdport.recording.runs import run
from wdport.uses.wan_vae.codec import Codec, CodecSettings, to_bytes
from wdport.uses.wan_vae.config import Config
from wdport.uses.wan_vae.family import FAMILY

EXACT = 1e-12
LATENTS = 5


@pytest.fixture(autouse=True)
def _compile_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "OPTIONS", fast_compile())


def filled(config: Config, dtype: str = "float32", seed: int = 0) -> keras.Model:
    """The port with random weights; those of the last convolution are small, so that few pixels are clipped."""
    model, rng = FAMILY.build(config, dtype), np.random.default_rng(seed)
    for path, variable in variables_by_path(model).items():
        width = 0.2 if path.startswith("decoder/conv_out") else 1.0
        scale = 0.1 if len(variable.shape) == 1 else width * np.prod(variable.shape[:-1]) ** -0.5
        set_variable(variable, scale * rng.standard_normal(variable.shape))
    return model


def converted(fields: Fields, folder: Path) -> keras.Model:
    """The port in float64 of a random checkpoint."""
    file = wdport.convert(save(folder / "m", fields), folder / "m.safetensors").output
    return wdport.load_model(file, "float64")


def drawn(config: Config, latents: int = LATENTS, batch: int = 1) -> np.ndarray:
    shape = (batch, (latents - 1) * config.frames + 1, 2 * config.pixels, 3 * config.pixels)
    return np.random.default_rng(1).uniform(-1, 1, (*shape, config.in_channels // config.patch**2))


def every_chunk(fields: Fields, folder: Path, chunks: Iterator[int] | range) -> float:
    """The largest error of encoding and decoding in these chunks, against the library."""
    config, tensors = Config.from_dict(fields), tensors_of(fields)
    video = drawn(config)
    if config.frames < 4:  # the library drops frames that do not fill its groups of four
        video = video[:, : 1 + (video.shape[1] - 1) // 4 * 4]
    module = FAMILY.build_reference(config, tensors, "float64")
    with lifted():
        made = run(module, (video.transpose(0, 4, 1, 2, 3),))
    mean, logvar, decoded = (each.transpose(0, 2, 3, 4, 1) for each in made)
    errors = []
    with jax.enable_x64(True):
        model = converted(fields, folder)
        for chunk in chunks:
            found = model.encode(video, chunk=chunk)
            again = model.decode(mean, chunk=chunk)
            assert again.dtype == "float64"
            errors += [relative_l2(found.mean, mean), relative_l2(found.logvar, logvar), relative_l2(again, decoded)]
    return max(errors)


def test_chunks_equal_the_library(tmp_path: Path) -> None:
    """Two latent frames at a time, of five: the first chunk begins before the video."""
    assert every_chunk(OLD, tmp_path, range(2, 3)) < EXACT


@pytest.mark.full
@pytest.mark.parametrize("name", VARIANTS)
def test_chunks_of_every_size_equal_the_library(name: str, tmp_path: Path) -> None:
    assert every_chunk(VARIANTS[name], tmp_path, range(1, LATENTS + 2)) < EXACT


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_chunks_of_random_configurations_equal_the_library(seed: int, tmp_path: Path) -> None:
    assert every_chunk(random_fields(seed), tmp_path, range(1, 4)) < EXACT


def test_one_program_for_every_length() -> None:
    """Videos of other lengths, other weights, and normalised latents compile nothing new."""
    config = Config.from_dict({**OLD, "num_res_blocks": 1})
    model = filled(config)
    rng = np.random.default_rng(0)
    shapes = []
    for latents in (3, 1, 2, 6):
        z = rng.standard_normal((1, latents, 2, 3, 2)).astype(np.float32)
        shapes.append(model.decode(z, chunk=2).shape[1])
        model.decode(z, chunk=2, normalised=True)
    assert shapes == [5, 1, 3, 11]
    codec = model.codecs(CodecSettings("float32", "float32", "float32"))
    assert (codec.decoder.programs, codec.encoder.programs) == (1, 0)


def test_bytes_equal_the_rule_in_numpy() -> None:
    """Every byte, of values near every half level, in float32 and bfloat16, compiled as a part of a program."""
    levels = np.arange(-3, 516, dtype=np.float64) / 2 / 127.5 - 1
    near = (levels[:, None] * (1 + np.array([-2, -1, 0, 1, 2]) * 2.0**-24)).ravel()
    random = np.random.default_rng(0).uniform(-1.2, 1.2, 100_000)
    for kind in ("float32", "bfloat16"):
        values = jax.numpy.asarray(np.concatenate([near, random]), kind)
        scaled = np.clip((np.asarray(values.astype("float32")) + np.float32(1)) * np.float32(127.5), 0, 255)
        for truncate, right in ((False, np.round(scaled)), (True, np.trunc(scaled))):
            found = jax.jit(to_bytes, static_argnums=1)(values, truncate)
            assert np.array_equal(np.asarray(found), right.astype(np.uint8))


@pytest.mark.full
def test_nothing_is_compiled_again() -> None:
    """XLA's own count of what it compiles, over both directions and several lengths."""
    compiled: list[str] = []

    def listen(event: str, _: float, **__: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    model = filled(Config.from_dict(OLD))
    rng = np.random.default_rng(0)
    latents = [rng.standard_normal((1, count, 2, 3, 2)).astype(np.float32) for count in (3, 1, 4, 7)]
    videos = [model.decode(each, chunk=2) for each in latents[:1]]
    model.encode(videos[0], chunk=2)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        videos = [model.decode(each, chunk=2) for each in latents]
        assert [model.encode(each, chunk=2).mean.shape[1] for each in videos] == [3, 1, 4, 7]
        assert compiled == []
        model.decode(latents[0], chunk=3)  # another size of a chunk is another program
        assert compiled != []
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.full
def test_memory_does_not_grow_with_the_number_of_frames() -> None:
    """Peaks of resident memory, each in a process of its own: 81 frames of 128 x 128 within a tenth of 21."""
    script = Path(wdport.__file__).parents[1] / "bench" / "decode.py"
    peaks = []
    for frames in (21, 81):
        words = [sys.executable, str(script), "--one", "chunks", "--size", "128", "--frames", str(frames)]
        peaks.append(float(subprocess.run(words, capture_output=True, text=True, check=True).stdout))
    assert peaks[1] < 1.1 * peaks[0], peaks


@pytest.mark.full
def test_outputs_and_dtypes() -> None:
    config = Config.from_dict(OLD)
    model = filled(config)
    z = np.random.default_rng(0).standard_normal((1, 2, 2, 3, 2)).astype(np.float32)
    video = model.decode(z)
    pixels = model.decode(z, output="uint8")
    assert (video.dtype, pixels.dtype) == ("float32", "uint8")
    assert np.array_equal(pixels, np.asarray(to_bytes(video)))
    low = model.decode(z, compute_dtype="bfloat16")
    narrow = model.decode(z, dtype="bfloat16")
    assert low.dtype == narrow.dtype == "float32"
    distances = [relative_l2(each, video) for each in (low, narrow)]
    assert all(1e-4 < each < 0.1 for each in distances)
    assert not np.array_equal(low, narrow)
    rounded = filled(config)
    for variable in rounded.weights:
        set_variable(variable, np.asarray(variable.value.astype("bfloat16")).astype(np.float32))
    assert relative_l2(rounded.decode(z), narrow) < 1e-6  # only the weights are rounded


def test_normalised_latents() -> None:
    config = Config.from_dict(OLD)
    model = filled(config)
    video = drawn(config, 2).astype(np.float32)
    plain, normal = model.encode(video), model.encode(video, normalise=True)
    mean, std = np.array(config.latents_mean), np.array(config.latents_std)
    assert np.allclose(normal.mean, (plain.mean - mean) / std, atol=1e-6)
    assert np.allclose(np.exp(normal.logvar / 2), np.exp(plain.logvar / 2) / std, rtol=1e-5)
    assert np.allclose(model.decode(normal.mean, normalised=True), model.decode(plain.mean), atol=1e-5)


REFUSED = [
    ("encode", (1, 4, 4, 6, 3), {}, r"has 4 frames.*give 3 or 5 frames"),
    ("encode", (1, 5, 5, 6, 3), {}, r"5 x 6 pixels, and the model takes multiples of 2"),
    ("encode", (1, 5, 4, 6, 1), {}, r"with 3 channels"),
    ("encode", (5, 4, 6, 3), {}, r"shape \(5, 4, 6, 3\)"),
    ("decode", (1, 2, 2, 3, 3), {}, r"with 2 channels"),
    ("decode", (1, 0, 2, 3, 2), {}, r"so it is empty; give at least one"),
    ("decode", (1, 2, 2, 3, 2), {"chunk": 0}, r"chunk: invalid value 0"),
    ("decode", (1, 2, 2, 3, 2), {"output": "int8"}, r"'int8' is unknown"),
    ("decode", (1, 2, 2, 3, 2), {"compute_dtype": "int8"}, r"'int8' is unknown"),
    ("decode", (1, 2, 2, 3, 2), {"truncate": True}, r"add output='uint8'"),
]


def test_what_is_refused() -> None:
    model = filled(Config.from_dict(OLD))
    for method, shape, settings, words in REFUSED:
        with pytest.raises(wdport.WdportError, match=words):
            getattr(model, method)(np.zeros(shape, np.float32), **settings)
    with pytest.raises(wdport.WdportError, match="not have a value for each of 3 channels"):
        filled(Config.from_dict({**OLD, "z_dim": 3})).decode(np.zeros((1, 1, 2, 2, 3), np.float32), normalised=True)
    with pytest.raises(wdport.WdportError, match="dtype int64"):
        model.decode(np.zeros((1, 1, 2, 2, 2), np.int64))
    with pytest.raises(wdport.WdportError, match="video: has values up to 255, and the model takes -1 to 1"):
        model.encode(np.full((1, 1, 16, 16, 3), 255.0, np.float32))
    for value in (np.nan, np.inf):  # bytes would be black
        with pytest.raises(wdport.WdportError, match="latents: has NaN or infinite values"):
            model.decode(np.full((1, 1, 2, 2, 2), value, np.float32), output="uint8")


@pytest.mark.full
def test_a_scan_gives_the_same_and_is_exported() -> None:
    """One program for any number of chunks, for all platforms, with the past as the carry of a scan."""
    from jax import export

    config = Config.from_dict(OLD)
    model = filled(config)
    codec: Codec = model.codecs(CodecSettings("float32", "float32", "float32"))
    weights = codec.weights(model)
    chunks = np.random.default_rng(0).standard_normal((3, 1, 2, 2, 3, 2)).astype(np.float32)
    chunks[0, :, 0] = 0
    (count,) = export.symbolic_shape("n")
    specs = {name: jax.ShapeDtypeStruct(each.shape, each.dtype) for name, each in weights.items()}
    program = jax.jit(lambda weights, chunks, first: scanned(codec.decode_step, weights, chunks, first))
    made = export.export(program, platforms=("cpu", "cuda", "tpu"))(
        specs, jax.ShapeDtypeStruct((count, *chunks.shape[1:]), "float32"), jax.ShapeDtypeStruct((), "int32")
    )
    again = export.deserialize(made.serialize())
    for number in (2, 3):
        found = np.asarray(again.call(weights, chunks[:number], np.int32(-1)))
        frames = np.concatenate(list(found), axis=1)[:, 2 * config.frames - 1 :]
        latents = np.concatenate(list(chunks[:number]), axis=1)[:, 1:]
        assert relative_l2(frames, model.decode(latents, chunk=2)) < 1e-6


MESH = """
import numpy as np, jax
from jax.sharding import Mesh
from tests.uses.wan_vae.make import NEW
from tests.uses.wan_vae.test_codec import drawn, filled
from wdport.compare.measure import relative_l2
from wdport.uses.wan_vae.config import Config
import wdport

config = Config.from_dict({**NEW, "patch_size": None, "in_channels": 3, "out_channels": 3, "dim_mult": [1, 1],
                           "temperal_downsample": [True]})
model = filled(config)
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("batch", "width"))
z = np.random.default_rng(0).standard_normal((2, 3, 2, 8, 2)).astype(np.float32)
whole, divided = model.decode(z, chunk=2), model.decode(z, chunk=2, mesh=mesh)
video = whole[:, :5]
one, other = model.encode(video), model.encode(video, mesh=mesh)
print(relative_l2(divided, whole), relative_l2(other.mean, one.mean))
try:
    model.decode(z[:1], mesh=mesh)
except wdport.WdportError as error:
    print(error)
"""


@pytest.mark.full
def test_a_mesh_of_eight_devices_gives_the_same() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run([sys.executable, "-c", MESH], capture_output=True, text=True, env={**os.environ, **flags},
                         check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    errors, refused = ran.stdout.splitlines()
    assert max(map(float, errors.split())) < 1e-6
    assert "1 videos cannot be divided among 2 devices" in refused
