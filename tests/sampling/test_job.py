"""The river takes any family: states of another rank, other names, and a linear decoding of its own."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.fft import dctn, idctn

from tests.sampling.test_condition import network as labelled
from tests.sampling.toy import SHAPE as TOY_SHAPE
from tests.sampling.toy import toy_network
from wdport.diffusion.diffusion import Diffusion
from wdport.diffusion.schedules import noise_schedule, per_mille, step_list
from wdport.errors import UsageError
from wdport.files import figure
from wdport.files.figure import ANIMATED, animate_samples, draw_samples, figure_target
from wdport.files.samples_writer import samples_target
from wdport.model import ArrayNames, Decoding, Diffused, NotDecoded
from wdport.sampling.job import Job, plan_job
from wdport.sampling.network import Network, stored_network
from wdport.sampling.output import Output, draw_to_file, frames_of
from wdport.sampling.request import Request
from wdport.sampling.sampler import Programs
from wdport.sampling.samples import Samples

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
