"""Networks: every model with known inputs is exported as it stands, and gives the bits that the Keras model gives."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

import wdport
from tests.bad.ground import ground
from tests.command import Cli, Refused
from tests.families.test_custom import TABLES, files
from tests.families.toys import twins
from tests.make import SETTINGS, make_state, save
from tests.schemas.held import hold
from tests.uses.exporting.test_export import EVERYWHERE, run_alone
from tests.uses.masked_lm import make as tokens
from tests.uses.ts2vec import make as encoders
from tests.uses.unet2d import make as unets
from tests.uses.wan_vae import make as videos
from wdport.base.errors import UsageError
from wdport.cli.main import main
from wdport.compare.probe import stateless
from wdport.uses.exporting import loader


def exported(model: Path, *words: str) -> Path:
    """The artifact that the command writes."""
    path = model.with_name(f"{model.name.partition('.')[0]}.stablehlo")
    assert main(["export", str(model), "-o", str(path), *words]) == 0
    return path


def converted_model(family: str, folder: Path, fields: videos.Fields | None = None) -> Path:
    """A small model of a family."""
    if family == "masked_lm":
        source = tokens.save(folder / "words", {**tokens.fields_of("as published"), "num_hidden_layers": 1})
    elif family == "wan_vae":
        source = videos.save(folder / "vae", fields or videos.OLD)
    elif family == "unet2d":
        source = unets.save(folder / "unet", unets.fields_of("attention at every size"))
    elif family == "ts2vec":
        source = encoders.save(folder / "encoder.pt")
    else:
        return wdport.convert(save(folder / "a.ckpt", make_state()), values=SETTINGS).output
    return wdport.convert(source, folder / f"{source.stem}.keras").output


def called(model: Any, *inputs: Any) -> list[np.ndarray]:
    """The outputs of the Keras model, whose weights are arguments as in an exported program."""
    groups = [v.value for v in model.trainable_variables], [v.value for v in model.non_trainable_variables]
    with jax.default_matmul_precision("highest"):
        made = jax.jit(lambda *weights: jax.tree.leaves(stateless(model, *weights, inputs)))(*groups)
    return [np.asarray(each) for each in made]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model and an autoencoder with their artifacts for three platforms, and what the command says."""
    folder = tmp_path_factory.mktemp("made")
    for model in (converted_model(family, folder) for family in ("masked_lm", "wan_vae")):
        document = model.with_suffix(".json")
        exported(model, "--platforms", "cpu,cuda,tpu", "--json", str(document))
        hold("export", json.loads(document.read_text()))
    return folder


def same(found: Any, wanted: list[np.ndarray]) -> None:
    """Equal bit for bit."""
    arrays = [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]
    assert [each.dtype for each in arrays] == [each.dtype for each in wanted]
    assert all(np.array_equal(a, b) for a, b in zip(arrays, wanted, strict=True))
    assert all(np.isfinite(each.astype("f4")).all() and each.size > 1 and np.ptp(each.astype("f4")) > 0
               for each in arrays)  # fmt: skip


ALONE = """
words, vae = load(f"{work}/words.stablehlo"), load(f"{work}/vae.stablehlo")
with np.load(f"{work}/inputs.npz") as given:
    made = {"logits": words(given["ids"], given["mask"]), "video": vae["decode"](given["latents"])}
    made["mean"], made["logvar"] = vae["encode"](made["video"])
facts = vae.facts
"""


def test_it_runs_with_jax_alone(made: Path, tmp_path: Path, same_compiler: dict[str, str]) -> None:
    """A language model and an autoencoder, at lengths and sizes that nobody stated before."""
    rng = np.random.default_rng(0)
    ids, mask = rng.integers(0, 30, (3, 17)), np.arange(17) < np.array([[17], [4], [9]])
    latents = rng.standard_normal((2, 3, 4, 3, 2)).astype(np.float32)
    np.savez(made / "inputs.npz", ids=ids, mask=mask, latents=latents)
    said = run_alone(ALONE, tmp_path, made, **same_compiler)
    assert said["known"] == []
    hold("export-facts", said["facts"])
    assert said["facts"]["programs"]["decode"]["inputs"] == [
        {"name": "latents", "dtype": "float32", "shape": ["b", "t", "h", "w", 2]}
    ]
    assert said["facts"]["programs"]["decode"]["outputs"][0]["shape"] == ["b", "2*t - 1", "2*h", "2*w", 3]
    coder = wdport.load_model(made / "vae.keras")
    video = coder.decode(latents)
    with np.load(made / "made.npz") as found:
        same(found["logits"], called(wdport.load_model(made / "words.keras"), ids.astype("i4"), mask))
        same(found["video"], [video])
        same((found["mean"], found["logvar"]), list(coder.encode(video)))


def programs(path: Path) -> list[str]:
    """Names of the programs in an artifact, each of which is for every platform and computes in bfloat16."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".program")]
        for name in names:
            held = jax.export.deserialize(bytearray(archive.read(name)))
            assert held.platforms == EVERYWHERE
            assert "bf16" in held.mlir_module()
            assert {"b"} < {str(size) for size in held.in_avals[-1].shape}
    return names


def test_one_program_has_the_code_of_every_platform(tmp_path: Path) -> None:
    path = exported(
        converted_model("wan_vae", tmp_path, videos.NEW), "--platforms", "cpu,cuda,tpu", "--dtype", "mixed_bfloat16"
    )
    assert programs(path) == ["encode.program", "decode.program"]


def test_mixed_bfloat16(tmp_path: Path) -> None:
    """The weights stay in float32, the activations are rounded."""
    model = converted_model("masked_lm", tmp_path)
    path = exported(model, "--platforms", "cpu,cuda,tpu", "--dtype", "mixed_bfloat16")
    assert len(programs(path)) == 1
    found = loader.load(path)
    assert {each["dtype"] for each in found.facts["weights"]} == {"float32"}
    assert found.facts["compute_dtype"] == "bfloat16"
    ids, mask = np.random.default_rng(0).integers(0, 30, (2, 5)).astype("i4"), np.ones((2, 5), bool)
    rounded = found(ids, mask)
    same(rounded, called(wdport.load_model(model, "mixed_bfloat16"), ids, mask))
    exact = called(wdport.load_model(model), ids, mask)[0]
    assert 1e-4 < np.linalg.norm(np.asarray(rounded, "f4") - exact) / np.linalg.norm(exact) < 0.1


@pytest.mark.parametrize("name", TABLES)
def test_a_model_of_the_users_own(tmp_path: Path, name: str) -> None:
    checkpoint, table = files(tmp_path, name)
    output = wdport.convert(checkpoint, tmp_path / "own.keras", mapping=table).output
    found = loader.load(exported(output, "--mapping", str(table)))
    model = wdport.Port(table).load(checkpoint)
    arrays = [_drawn(each, 3) for each in found.facts["programs"]["call"]["inputs"]]
    same(found(*arrays), called(model, *arrays))


def _drawn(told: dict[str, Any], batch: int) -> np.ndarray:
    """Values for an input; sizes that may vary are 3."""
    shape = [batch if size == "b" else 3 if isinstance(size, str) else size for size in told["shape"]]
    rng = np.random.default_rng(len(shape))
    return rng.integers(0, 30, shape).astype("i4") if told["dtype"] == "int32" else rng.standard_normal(shape, "f4")


@pytest.mark.full
def test_other_families(tmp_path: Path) -> None:
    """An encoder of any length; of models that draw samples the network itself."""
    encoder = converted_model("ts2vec", tmp_path)
    found = loader.load(exported(encoder))
    batch, length, width = found.facts["programs"]["call"]["inputs"][0]["shape"]
    assert (batch, length) == ("b", "t")
    x = np.random.default_rng(0).standard_normal((2, 11, width), "f4")
    same(found(x), called(wdport.load_model(encoder), x))
    unet = converted_model("unet2d", tmp_path)
    found = loader.load(exported(unet, "--what", "network", "--batch-size", "2"))
    image, time = found.facts["programs"]["call"]["inputs"]
    assert image["shape"][0] == time["shape"][0] == 2
    step = int(image["shape"][1].partition("*")[0])
    x = np.random.default_rng(0).standard_normal((2, 3 * step, 2 * step, image["shape"][3]), "f4")
    same(found(x, [3, 7]), called(wdport.load_model(unet), x, np.array([3, 7], "i4")))


def test_from_python(made: Path, tmp_path: Path) -> None:
    """A model that wdport does not know needs its inputs; sizes are fixed on request."""
    result = wdport.export(wdport.load_model(made / "words.keras"), tmp_path / "a.stablehlo", sizes={"n": 8})
    assert result.facts["what"] == "network"
    assert loader.load(result.path).facts["programs"]["call"]["inputs"][0]["shape"] == ["b", 8]
    own = twins.words()
    with pytest.raises(UsageError, match="is not built; call it once"):
        wdport.export(own, tmp_path / "b.stablehlo", inputs=["ids: b 8, below 50"])
    own(np.zeros((1, 8), int))
    wdport.export(own, tmp_path / "b.stablehlo", inputs=["ids: b 8, below 50"], batch=2)
    ids = np.arange(16).reshape(2, 8)
    same(loader.load(tmp_path / "b.stablehlo")(ids), called(own, ids.astype("i4")))
    functional = twins.gru()
    x = np.random.default_rng(0).standard_normal((2, 9, 5), "f4")
    same(loader.load(wdport.export(functional, tmp_path / "f.stablehlo").path)(x), called(functional, x))
    refusals: dict[str, tuple[Any, dict[str, Any]]] = {
        "a int is not a Keras model": (7, {}),
        "the inputs of a Words are not known; state them": (own, {}),
        "is not NAME: AXES": (own, {"inputs": ["8"]}),
        "sampler: a network has none": (own, {"inputs": ["ids: b 8, below 50"], "steps": 3}),
        "a .* is not a diffusion model": (own, {"what": "sampler"}),
        "inputs: are for a network": (own, {"what": "denoiser", "inputs": ["ids: b 8, below 50"]}),
        "--size n: is not a size of this model that varies; leave it out": (
            own, {"inputs": ["ids: b 8, below 50"], "sizes": {"n": 2}}
        ),
    }  # fmt: skip
    for words, (model, given) in refusals.items():
        with pytest.raises(UsageError, match=words):
            wdport.export(model, tmp_path / "c.stablehlo", **given)
    assert not (tmp_path / "c.stablehlo").exists()


def test_what_a_loaded_network_refuses(made: Path) -> None:
    words, vae = (loader.load(made / f"{name}.stablehlo") for name in ("words", "vae"))
    ids, mask = np.zeros((1, 4), int), np.ones((1, 4), bool)
    assert words(ids, mask.astype(int)).shape == (1, 4, 30)
    assert np.array_equal(words(ids.astype(float), mask), words(ids, mask))
    refusals: dict[str, Any] = {
        r"call takes 2 inputs, input_ids \(b, n\), attention_mask \(b, n\), not 1": lambda: words(ids),
        r"input_ids \(b, n\) has shape \(4,\)": lambda: words(ids[0], mask),
        "input_ids has dtype bool, not int32": lambda: words(mask, mask),
        "input_ids has values that int32 does not hold": lambda: words(ids + 0.5, mask),
        "input_ids has .* that int32 does not hold": lambda: words(ids * np.nan, mask),
        "has values that int32 does not hold": lambda: words(ids + 2**40, mask),
        r"call takes .* not \(1, 4\), \(1, 3\)": lambda: words(ids, mask[:, :3]),
        r"encode takes video \(b, 2\*t - 1, 2\*h, 2\*w, 3\), not \(1, 4, 4, 4, 3\)": (
            lambda: vae["encode"](np.zeros((1, 4, 4, 4, 3)))
        ),
        r"latents \(b, t, h, w, 2\) has shape \(1, 1, 2, 2, 3\)": lambda: vae["decode"](np.zeros((1, 1, 2, 2, 3))),
    }
    for told, call in refusals.items():
        with pytest.raises(ValueError, match=told) as raised:
            call()
        assert "\n" not in str(raised.value)
    with pytest.raises(TypeError, match="this file has the functions decode, encode: choose one by its name"):
        vae(np.zeros((1, 1, 2, 2, 2)))
    with pytest.raises(KeyError):
        vae["denoise"]


def test_the_command(made: Path, tmp_path: Path, cli: Cli) -> None:
    output = tmp_path / "vae.stablehlo"
    said = " ".join(cli("export", made / "vae.keras", "-o", output, "--size", "h=4", "--size", "w=6").out.split())
    assert "vae.keras: network exported" in said
    assert "encode video (b, 2*t - 1, 8, 12, 3) -> mean (b, t, 4, 6, 2), logvar (b, t, 4, 6, 2)" in said
    assert "decode latents (b, t, 4, 6, 2) -> video (b, 2*t - 1, 8, 12, 3)" in said
    document = json.loads((made / "vae.json").read_text())
    assert document["programs"]["decode"]["outputs"][0]["name"] == "video"


@pytest.mark.parametrize(
    ("words", "says"),
    [("VAE --what denoiser", "a wan_vae model draws no samples; give a converted diffusion model"),
     ("VAE --what sampler", "--what network exports this one"), ("VAE --steps 5", "--steps: requires --what sampler"),
     ("VAE --size n=5", "--size n: is not a size of this model that varies; give t, h, w"),
     ("VAE --size t", "--size: 't' is not NAME=N"), ("VAE --size t=0", "--size t: invalid size 0"),
     ("LEVELS --size n=5", "--size: requires --what network"), ("VAE --input X", "--input"),
     ("VAE --to torch --size t=3", "--size: requires --to stablehlo")],
)  # fmt: skip
def test_refusals(made: Path, tmp_path: Path, words: str, says: str, refused: Refused) -> None:
    values = {"VAE": made / "vae.keras", "LEVELS": ground() / "good.keras", "X": "x: b 3"}
    output = tmp_path / ("a.safetensors" if "torch" in words else "a.stablehlo")
    refused("export", *[values.get(word, word) for word in words.split()], "-o", output, says=says)
    assert list(tmp_path.iterdir()) == []


def test_an_own_table_that_says_too_little(tmp_path: Path, cli: Cli, refused: Refused) -> None:
    checkpoint, table = files(tmp_path, "words")
    output = wdport.convert(checkpoint, tmp_path / "own.keras", mapping=table).output
    given = ("export", output, "--mapping", table, "-o", tmp_path / "a.stablehlo")
    refused(*given, "--what", "sampler", says="its table does not say how it draws samples")
    table.write_text(table.read_text().replace('inputs: ["ids: b 8, below 50"]\n', ""))
    refused(*given, code=4, says="returns a model that is not built")
    cli(*given, "--input", "ids: b 8, below 50")


@keras.saving.register_keras_serializable("tests")
class Counting(keras.Model):
    """Looks at the number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.built = True

    def call(self, x: Any) -> Any:
        return x if x.shape[0] > 2 else -x


def test_sizes_that_jax_cannot_leave_open(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be exported for any b: .*; fix sizes, with --batch-size N"):
        wdport.export(Counting(), tmp_path / "a.stablehlo", inputs=["x: b 6"])
    assert wdport.export(Counting(), tmp_path / "a.stablehlo", inputs=["x: b 6"], batch=4).facts["batch"] == 4
