"""Jobs: any family, frames and figures, parts that are missing, batch sizes and the memory for them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.fft import dctn, idctn

from tests.make import SMALL
from tests.uses.sampling.test_condition import network as labelled
from tests.uses.sampling.toy import SHAPE as TOY_SHAPE
from tests.uses.sampling.toy import toy_network, toy_programs
from wdport.base.errors import UsageError
from wdport.files import figure
from wdport.files.figure import ANIMATED, animate_samples, draw_samples, figure_target
from wdport.files.samples_writer import samples_target
from wdport.models.interface import ArrayNames, Decoding, Diffused, NotDecoded
from wdport.uses.diffusion.diffusion import Diffusion
from wdport.uses.diffusion.schedules import noise_schedule, per_mille, step_list
from wdport.uses.sampling import devices as memory
from wdport.uses.sampling.devices import auto_batch, group_bytes, sample_bytes
from wdport.uses.sampling.job import Job, plan_job
from wdport.uses.sampling.network import Network, stored_network
from wdport.uses.sampling.output import Output, auto_chunk, draw_to_file, fill_parts, frames_of
from wdport.uses.sampling.parts import Parts
from wdport.uses.sampling.request import Request
from wdport.uses.sampling.sampler import Programs, Sampler, Samples, plan_of, programs_of
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.family import FAMILY
from wdport.uses.waveletdiff.port import WaveletDiff

SHAPE = (4, 6, 2)
MEAN, STD = (1.0, -2.0), (0.5, 3.0)
PROCESS = Diffusion(noise_schedule("linear"), "noise", per_mille(1000), step_list)


def spectrum(shape: tuple[int, ...] = SHAPE[:2]) -> np.ndarray:
    """The orthonormal two-dimensional cosine transform as a matrix, by SciPy."""
    units = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    return np.stack([dctn(unit, norm="ortho").ravel() for unit in units], axis=1)


def decoding() -> Decoding:
    """Images of two channels from their spectra."""
    matrix = spectrum()

    def turned(by: np.ndarray, values: Any) -> Any:
        flat = jnp.asarray(values).reshape(*values.shape[:-3], -1, SHAPE[-1])
        return jnp.einsum("ij,...jf->...if", by.astype(flat.dtype), flat).reshape(values.shape)

    return Decoding(SHAPE, lambda x: turned(matrix, x), lambda x: turned(matrix.T, x), MEAN, STD, "in grey levels")


def network(decoded: bool = True) -> Network:
    """Spectra of images; the network itself is of no consequence."""
    way = decoding() if decoded else NotDecoded("a toy", "the toy has no pixels", "take another")
    about = Diffused(
        SHAPE, ArrayNames("spectra", "wave", "wave number"), ArrayNames("images", "pixel", "pixel"), way, 96
    )

    def finish(_: Any, state: Any) -> Any:
        return state, way.decode(state) * jnp.array(STD) + jnp.array(MEAN) if isinstance(way, Decoding) else None

    def apply(_: Any, state: Any, time: Any, labels: Any = None) -> Any:
        return jnp.sin(3.0 * state + jnp.reshape(time, (-1, *[1] * (state.ndim - 1))))

    return Network(apply, finish, lambda: (), lambda: PROCESS, "float32", about)


def planned(net: Network, **given: Any) -> Job:
    return plan_job(Programs(net), Request(sampler="ddim", steps=5, **given))


def test_states_of_another_rank_have_the_names_of_their_family() -> None:
    samples = Samples.join(list(planned(network(), count=5, batch=2).draw()))
    assert samples.spectra.shape == samples.images.shape == (5, *SHAPE)
    by_scipy = np.stack([idctn(each, axes=(0, 1), norm="ortho") for each in samples.spectra]) * STD + MEAN
    np.testing.assert_allclose(samples.images, by_scipy, rtol=1e-4, atol=1e-4)
    assert samples.spectra is samples.state
    assert samples.images is samples.decoded
    assert samples.part(1, 2).images.shape == (1, *SHAPE)
    with pytest.raises(AttributeError, match="samples have no 'latents'; they have spectra, images"):
        _ = samples.latents
    bare = Samples.join(list(planned(network(False), count=2).draw()))
    assert bare.images is None
    assert list(bare.arrays) == ["spectra"]


def test_known_values_of_another_decoding_are_kept() -> None:
    known = np.where(np.arange(6)[None, :, None] < 3, np.random.default_rng(0).standard_normal(SHAPE), np.nan)
    samples = Samples.join(list(planned(network(), count=3, known=known, resample=2).draw()))
    mask = np.isfinite(known)
    assert np.array_equal(samples.images[:, mask], np.broadcast_to(known[mask].astype("f4"), (3, mask.sum())))
    again = np.stack([dctn((each - MEAN) / STD, axes=(0, 1), norm="ortho") for each in samples.images])
    np.testing.assert_allclose(samples.spectra, again, rtol=1e-3, atol=1e-3)
    with pytest.raises(UsageError, match="known: the toy has no pixels; take another"):
        planned(network(False), known=known)


@pytest.mark.parametrize("suffix", ["npz", "npy", "csv"])
def test_files_of_another_family(tmp_path: Path, suffix: str) -> None:
    job = planned(network(), count=5, batch=2)
    output = Output(samples_target(tmp_path / f"a.{suffix}", {}, False), {"seed": 0}, chunk=2)
    shown: list[int] = []
    ran = draw_to_file(job, output, lambda *_: nullcontext(), lambda blocks: shown.append(len(list(blocks()))))
    assert ran is not None
    assert ran.shapes == {"spectra": (5, *SHAPE), "images": (5, *SHAPE)}
    assert shown == [3]
    images = Samples.join(list(job.draw())).images
    if suffix == "csv":
        head, *rows = (tmp_path / "a.csv").read_text().splitlines()
        assert head == "sample,pixel,feature_1,feature_2"
        found = np.array([row.split(",")[2:] for row in rows], np.float32)
        assert np.array_equal(found.reshape(images.shape), images)
    else:
        found = np.load(tmp_path / f"a.{suffix}")
        assert np.array_equal(found["images"] if suffix == "npz" else found, images)
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{suffix}"]


def test_a_figure_of_another_rank(tmp_path: Path) -> None:
    draw_samples(figure_target(tmp_path / "a.svg"), np.zeros((2, *SHAPE)), None, "pixel")
    assert "pixel" in (tmp_path / "a.svg").read_text()


def test_a_family_without_the_role_draws_no_samples() -> None:
    class Plain:
        name = "masked_lm"

    with pytest.raises(UsageError, match="is not a diffusion model; give a model that wdport convert wrote"):
        stored_network(Plain(), None, {})


@pytest.mark.parametrize(
    "given",
    [
        {"sampler": "ddim", "steps": 7, "eta": 0.5},
        {"sampler": "heun", "steps": 90},
        {"sampler": "ddim", "steps": 5, "init": np.ones((6, *TOY_SHAPE))},
        {"sampler": "ddim", "steps": 5, "condition": [0, 1, 2]},
    ],
)
def test_frames(given: dict[str, Any]) -> None:
    net = labelled() if "condition" in given else toy_network()
    job = plan_job(Programs(net), Request(count=6, seed=2, **given))
    samples = Samples.join(list(job.draw()))
    frames = frames_of(job, 4, limit=9)
    assert len(frames) == min(9, len(job.sampler.plan.steps) + 1)
    assert frames.shape[1:] == (4, *TOY_SHAPE)
    np.testing.assert_allclose(frames[-1], samples.series[:4], rtol=1e-5, atol=1e-5)
    if "init" in given:
        assert np.array_equal(frames[0], np.full((4, *TOY_SHAPE), 2.0, np.float32))
    assert len(np.unique(frames.reshape(len(frames), -1), axis=0)) == len(frames)


@pytest.mark.parametrize("shape", [(2,), (8, 8, 1), (6, 5, 3), (24, 3), (4, 5, 2), (7,)])
def test_figures(shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.setattr(figure, "FRAMES_PER_SECOND", 1)  # so often the last frame is drawn again
    values = np.random.default_rng(0).uniform(0.0, 1.0, (5, *shape)).astype(np.float32)
    values[0].flat[0] = np.nan
    still = figure_target(tmp_path / "a.png")
    draw_samples(still, values)
    moving = figure_target(tmp_path / "a.gif", False, None, "--animate", ANIMATED)
    animate_samples(moving, np.stack([values, values / 2.0, 1.0 - values]))
    with Image.open(still.path) as image:
        assert len(image.convert("L").getcolors() or range(999)) > 10
    with Image.open(moving.path) as image:
        assert image.n_frames >= 3
    with pytest.raises(UsageError, match=r"unknown figure format; end the name in \.gif"):
        figure_target(tmp_path / "a.mp4", False, None, "--animate", ANIMATED)


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    programs = toy_programs()
    return Sampler(programs, plan_of(programs.network, "ddim", 100), 2)


def test_parts_are_saved_every_so_many_chunks(sampler: Sampler, tmp_path: Path) -> None:
    told: list[float] = []
    with Parts(tmp_path / "a.npz", {}) as parts:
        fill_parts(Job(sampler, 11, 2), parts, save_every=2, done=told.append)
        names = sorted(file.name for file in parts.folder.glob("*.npz"))
        drawn = np.concatenate([block["series"] for block in parts.blocks()])
    assert [name.split("-")[:2] for name in names] == [
        ["000000000", "000000004"], ["000000004", "000000008"], ["000000008", "000000011"]]  # fmt: skip
    assert drawn.shape == (11, 5, 3)
    assert told == sorted(told)
    assert told[-1] == 11.0
    assert told[0] == 0.0  # when all is compiled
    assert 0.0 < told[1] < 2.0


def test_parts_are_few_and_whole_batches() -> None:
    counts = (1, 64, 2000, 10_000, 1_000_000)
    assert [auto_chunk(count, 64, 8) for count in counts] == [64, 64, 64, 320, 31_232]
    assert [auto_chunk(count, 64, 1 << 15) for count in counts] == [64, 64, 64, 256, 256], "8 MiB at most"
    assert auto_chunk(1_000_000, 64, 1 << 30) == 64


def test_what_is_there_is_not_drawn_again(sampler: Sampler, tmp_path: Path) -> None:
    with Parts(tmp_path / "a.npz", {}) as parts:
        fill_parts(Job(sampler, 4, 2), parts)
        marked = {name: np.full((2, 5, 3), 7.0, np.float32) for name in ("coefficients", "series")}
        parts.save(2, marked)
        fill_parts(Job(sampler, 6, 2), parts)
        blocks = [block["coefficients"] for block in parts.blocks()]
    assert [len(block) for block in blocks] == [2, 2, 2]
    assert np.array_equal(blocks[1], marked["coefficients"])
    assert not np.array_equal(blocks[2], blocks[0])


def test_batches_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = FAMILY.diffused(SMALL).numbers
    per_sample = sample_bytes(numbers, "float32")
    assert sample_bytes(numbers, "float64") == 2 * per_sample == 8 * numbers
    for free, count, expected in ((1 << 40, 1000, 64), (1 << 40, 10, 10), (20 * per_sample, 1000, 10), (1, 1000, 1)):
        monkeypatch.setattr(memory, "free_bytes", lambda free=free: free)
        assert auto_batch(numbers, "float32", count) == expected


def test_free_memory_is_known() -> None:
    assert 1 << 20 < memory.free_bytes() < 1 << 50


def test_the_estimate_covers_what_the_compiler_asks_for() -> None:
    """At a length where attention weights count."""
    config = Config((64, 64, 128, 256), 2, 8, 2, 1, 8, wavelet="db2", boundary_mode="symmetric", seq_len=500)
    model = WaveletDiff(config)
    programs = programs_of(model)
    state = jax.ShapeDtypeStruct((8, config.coefficients, config.features), np.float32)
    network = programs.network

    times = jax.ShapeDtypeStruct((8,), np.float32)
    compiled = jax.jit(network.apply).lower(network.weights(), state, times).compile()
    asked = compiled.memory_analysis().temp_size_in_bytes
    assert 0 < asked <= 8 * sample_bytes(network.about.numbers, "float32") + (1 << 20)


MB = 1 << 20
SECOND = ("sys/fs/cgroup", "0::{}", ("memory.max", "memory.current", "inactive_file"))
FIRST = (
    "sys/fs/cgroup/memory",
    "7:cpu,cpuacct:/else\n4:memory:{}",
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
UNLIMITED = {SECOND: "max", FIRST: "9223372036854771712"}


def group(folder: Path, names: tuple[str, str, str], limit: int | str, used: int, cached: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {cached}\n")


@pytest.mark.parametrize("kind", [SECOND, FIRST], ids=("version 2", "version 1"))
def test_the_tightest_group_counts(tmp_path: Path, kind: tuple[str, str, tuple[str, str, str]]) -> None:
    mount, line, names = kind
    told = tmp_path / "proc/self/cgroup"
    told.parent.mkdir(parents=True)
    told.write_text(line.format("/job/step") + "\n")
    assert group_bytes(tmp_path) is None
    # in a container: the path is the machine's, and what is seen at the mount is the container's own group
    group(tmp_path / mount, names, 1000 * MB, 990 * MB, 900 * MB)
    assert group_bytes(tmp_path) == 910 * MB, "files in memory make room"
    # under a batch system: the job's limit is tighter than that of the step within it
    group(tmp_path / mount / "job", names, 300 * MB, 100 * MB, 0)
    group(tmp_path / mount / "job/step", names, UNLIMITED[kind], 50 * MB, 0)
    assert group_bytes(tmp_path) == 200 * MB
    group(tmp_path / mount / "job/step", names, 50 * MB, 60 * MB, 0)
    assert group_bytes(tmp_path) == 0, "never less than nothing"


def test_no_groups_no_limit(tmp_path: Path) -> None:
    assert group_bytes(tmp_path) is None
