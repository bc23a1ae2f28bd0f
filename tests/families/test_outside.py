"""A family of another package without a change in wdport, and families whose library is not installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import wdport
from tests.families.test_recorded import run_each_without, run_without
from tests.uses.masked_lm import make as masked_lm
from tests.uses.unet2d import make as unet2d
from tests.uses.wan_vae import make as wan_vae
from wdport.base import extensions
from wdport.base.errors import InputError, MachineError, MisfitError
from wdport.cli.main import main
from wdport.families.registry import find_family, known_names
from wdport.mapping.table import choose_table, shipped_tables
from wdport.uses.libraries import released_class
from wdport.uses.masked_lm import reference as masked_lm_reference
from wdport.uses.unet2d.config import Config
from wdport.uses.unet2d.family import FAMILY

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_family"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint, and the package in ``site`` as an installer leaves it."""
    place = tmp_path_factory.mktemp("outside")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shutil.copytree(EXAMPLE / "perceptron", place / "site" / "perceptron")
    described = place / "site" / f"{project['name']}-{project['version']}.dist-info"
    described.mkdir()
    header = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (described / "METADATA").write_text(header)
    entries = project["entry-points"]["wdport.families"]
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (described / "entry_points.txt").write_text("\n".join(["[wdport.families]", *lines, ""]))
    torch.manual_seed(0)
    network = nn.Module()
    network.fc1, network.fc2 = nn.Linear(7, 16), nn.Linear(16, 3)
    torch.save(network.state_dict(), place / "p.pt")
    return place


@pytest.fixture(scope="module")
def run(place: Path) -> Run:
    """Runs commands, each as a list of words, in one process that has the package on its path."""

    def command(*commands: list[str], code: str = "", site: Path = place / "site") -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(site)}
        text = f"from wdport.cli.main import main; codes = [main(each) for each in {list(commands)!r}]; print(codes)"
        return subprocess.run([sys.executable, "-c", f"{text}\n{code}"], cwd=place, env=env, capture_output=True,
                              text=True, check=False)  # fmt: skip

    return command


def test_every_command_knows_it(run: Run, place: Path) -> None:
    code = "import keras, perceptron.port, torch; m = keras.saving.load_model('p.keras'); print(m.config.activation)"
    told = ["--set", "activation=tanh"]
    done = run(
        ["convert", "p.pt", *told], ["verify", "p.pt", "p.keras", *told, "--json", "v.json"], ["inspect", "p.keras"],
        ["export", "p.keras", "-o", "p.stablehlo"], ["export", "p.keras", "--to", "torch", "-o", "back.pt"], code=code,
    )  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["[0, 0, 0, 0, 0]", "tanh"], done.stderr
    verdict = json.loads((place / "v.json").read_text())
    assert verdict["passed"] is True
    assert (verdict["reference_kind"], verdict["reference_code"]) == ("package", "perceptron 0.1")
    stored, back = (torch.load(place / name, weights_only=True) for name in ("p.pt", "back.pt"))
    assert stored.keys() == back.keys()
    assert all(torch.equal(back[name], each) for name, each in stored.items())


def test_a_class_that_does_not_take_its_own_configuration_fails_the_full_battery(
    run: Run, place: Path, tmp_path: Path
) -> None:
    shutil.copytree(place / "site", tmp_path / "site")
    module = tmp_path / "site" / "perceptron" / "port.py"
    module.write_text(module.read_text().replace(" if isinstance(config, Config) else Config.from_dict(config)", ""))
    told, output = ["--set", "activation=tanh"], str(tmp_path / "p.keras")
    code = f"""
from pathlib import Path
from wdport.conversion.load import open_converted
from wdport.parity.file_pair import misread
print(*misread(open_converted(Path({output!r})), {{}}))"""
    done = run(["convert", "p.pt", *told, "-o", output], code=code, site=tmp_path / "site")
    assert "its own library does not load the file (AttributeError: " in done.stdout, done.stderr


WRONG = [
    (["--set", "activtion=tanh"], "--set activtion: is not a field of this model's configuration"),
    (["--set", "hidden=12"], "hidden is 12 in the flag but 16 in the file"),
    (["--set", "activation=gelu"], "activation 'gelu' is not supported: use relu, tanh, silu"),
    (["--strict"], "--strict rejects assumed values (activation=relu)"),
]


def test_wrong_values_get_one_line(run: Run, place: Path) -> None:
    done = run(*(["convert", "p.pt", "-o", "q.keras", *words] for words, _ in WRONG))
    lines = done.stderr.splitlines()
    assert len(lines) == len(WRONG), done.stderr
    for line, (_, said) in zip(lines, WRONG, strict=True):
        assert said in line
    assert not (place / "q.keras").exists()


def declare(monkeypatch: pytest.MonkeyPatch, *values: tuple[str, str]) -> None:
    found = EntryPoints(EntryPoint(name, value, extensions.GROUP) for name, value in values)
    monkeypatch.setattr(extensions, "entry_points", lambda group: found)
    extensions.declared_families.cache_clear()


@pytest.fixture
def _forgotten() -> object:
    yield
    extensions.declared_families.cache_clear()


@pytest.mark.usefixtures("_forgotten")
@pytest.mark.parametrize(
    ("values", "name", "said"),
    [
        ([("other", "no_such_module:FAMILY")], "other", r"declares it as no_such_module:FAMILY, which cannot be"),
        ([("other", "json:FAMILY")], "other", r"declares it as json:FAMILY, which cannot be imported"),
        ([("other", "json:dumps")], "other", r"the family that it declares as other has the name None"),
        ([("other", "a:F"), ("other", "b:F")], "other", r"^other: is a model family of a and b; uninstall one"),
        ([("ts2vec", "a:F")], "other", r"^a: declares the family ts2vec, which is one of wdport's"),
        ([], "other", r"unknown model family 'other'; use one of waveletdiff"),
    ],
)
def test_a_bad_package_is_named(
    monkeypatch: pytest.MonkeyPatch, values: list[tuple[str, str]], name: str, said: str
) -> None:
    declare(monkeypatch, *values)
    with pytest.raises(MisfitError, match=said):
        find_family(name, "table.yaml")


@pytest.mark.usefixtures("_forgotten")
def test_tables_are_found_without_importing_the_package(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.syspath_prepend(place / "site")
    shipped_tables.cache_clear()
    declare(monkeypatch, ("perceptron", "perceptron.family:FAMILY"))
    try:
        table = choose_table(["fc1.weight", "fc2.weight"], "p.pt")
        assert (table.family, table.path) == ("perceptron", "perceptron/mappings/perceptron.yaml")
        assert "perceptron" in known_names()
        assert not {name for name in sys.modules if name.startswith("perceptron.")}
    finally:
        shipped_tables.cache_clear()


def test_the_page_shows_the_files() -> None:
    page = (ROOT / "docs" / "own-family.md").read_text(encoding="utf-8")
    for name in ("pyproject.toml", "config.py", "port.py", "reference.py", "family.py", "perceptron.yaml"):
        (file,) = EXAMPLE.rglob(name)
        assert file.read_text(encoding="utf-8").rstrip() in page


WORDS = {**masked_lm.SMALL, "vocab_size": 12, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1}

CASES: dict[str, tuple[ModuleType, dict[str, Any], str, str]] = {
    "masked_lm": (masked_lm, WORDS, "transformers", "EuroBertForMaskedLM"),
    "unet2d": (unet2d, unet2d.SMALL, "diffusers", "UNet2DModel"),
    "wan_vae": (wan_vae, wan_vae.OLD, "diffusers", "AutoencoderKLWan"),
}


def test_without_the_library_verify_names_the_extra(tmp_path: Path) -> None:
    commands = []
    for name, (make, fields, _, _) in CASES.items():
        folder, file = str(make.save(tmp_path / name, fields)), str(tmp_path / f"{name}.keras")
        commands += [["convert", folder, "-o", file], ["verify", folder, file], ["selftest", "--family", name]]
    done = iter(run_each_without("transformers diffusers", *commands))
    for _, _, library, kind in CASES.values():
        refusal = (
            f"error: {library}: is not installed, and its {kind} is the reference; pip install 'wdport[{library}]'"
        )
        (code, _, said), verified, tried = next(done), next(done), next(done)
        assert (code, said) == (0, "")
        assert (verified[0], verified[2]) == (5, f"{refusal}\n")
        assert (tried[0], tried[2].splitlines()[-1]) == (5, refusal)


def build(checkpoint: str) -> torch.nn.Module:
    """The library's model of the folder with these weights, as its user loads it."""
    module = transformers.EuroBertForMaskedLM.from_pretrained(Path(checkpoint).parent, attn_implementation="eager")
    assert isinstance(module, torch.nn.Module)
    return module


@pytest.mark.full
def test_a_recording_replays_without_torch_and_the_library(tmp_path: Path) -> None:
    folder, file, recording = masked_lm.save(tmp_path / "m", WORDS), tmp_path / "m.keras", tmp_path / "m.npz"
    assert main(["convert", str(folder), "-o", str(file)]) == 0
    inputs = ["--input", "input_ids: b n=24, below 12", "--input", "attention_mask: b n=24, mask"]
    inputs += ["--leave-out", "model"]  # a module that the table does not name
    assert main(["record", f"{__name__}:build", str(folder), "-o", str(recording), *inputs]) == 0
    told = run_without("torch transformers diffusers", "verify", str(file), "--against", str(recording))
    assert told.returncode == 0, told.stderr
    assert "PASS" in told.stdout


def test_a_library_that_lacks_what_a_model_needs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import diffusers

    with pytest.raises(MachineError, match=r"^diffusers: 0.* has no UNet9DModel, and .*'wdport\[diffusers\]'"):
        released_class("diffusers", "UNet9DModel")

    class Older(torch.nn.Module):
        def __init__(self, sample_size: int) -> None: ...

    monkeypatch.setattr(diffusers, "UNet2DModel", Older)
    with pytest.raises(MachineError, match=r"UNet2DModel of 0.* has no field act_fn, and .*'wdport\[diffusers\]'"):
        FAMILY.library_of(Config(act_fn="mish"))


def test_what_the_reference_is_called() -> None:
    assert FAMILY.library_of(Config()).startswith("UNet2DModel of diffusers ")
    assert masked_lm_reference.library_of().startswith("EuroBertForMaskedLM of transformers ")


@pytest.mark.parametrize(("name", "field"), [("masked_lm", "num_hidden_layers"), ("unet2d", "layers_per_block")])
def test_a_converted_file_of_an_impossible_network(name: str, field: str, tmp_path: Path) -> None:
    """What Keras saved has no manifest; its configuration is bounded all the same, before anything is built."""
    make, fields, _, _ = CASES[name]
    file = wdport.convert(make.save(tmp_path / "m", fields), tmp_path / "out.keras").output
    hostile = tmp_path / "hostile.keras"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(hostile, "w") as new:
        document = json.loads(old.read("config.json"))
        document["config"]["config"][field] = 10**9
        new.writestr("config.json", json.dumps(document))
        for member in ("metadata.json", "model.weights.h5"):
            new.writestr(member, old.read(member))
    with pytest.raises(InputError, match=rf"hostile\.keras.*{field} 1000000000"):
        wdport.load_model(hostile)
