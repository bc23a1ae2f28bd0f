"""Four usual networks, each written in PyTorch and in Keras as anybody would, through the public commands: what is the
same passes, and one edit of the Keras source is found where it was made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch

from tests.families.quick import few_cases
from tests.families.toys.nets import randomised
from wdport.cli.main import main

pytestmark = pytest.mark.usefixtures("one_case")

TOYS = Path(__file__).parent / "toys"
TABLES: dict[str, str] = {
    "decoder": """
inputs: ["ids: b 8, below 40"]
layers:
  - {torch: embed, keras: embed, kind: embedding}
  - {torch: blocks.<i>.norm<n>, keras: blocks/<i>/norm<n>, kind: layer_norm}
  - {torch: blocks.<i>.attn, keras: blocks/<i>/attention, kind: attention}
  - {torch: blocks.<i>.up, keras: blocks/<i>/up, kind: linear}
  - {torch: blocks.<i>.down, keras: blocks/<i>/down, kind: linear}
  - {torch: blocks.<i>, keras: blocks/<i>}
  - {torch: norm, keras: norm, kind: layer_norm}
tensors:
  - {torch: position, keras: position, rule: identity}
tied:
  - {torch: head.weight, same_as: embed.weight}
""",
    "residual": """
inputs: ["x: b c=3 h=11 w=9 -> b h w c"]
layers:
  - {torch: conv1, keras: conv1, kind: conv2d}
  - {torch: bn1, keras: bn1, kind: batch_norm}
  - {torch: maxpool, keras: maxpool, kind: max_pool2d}
  - {torch: layer<l>.<i>.conv<n>, keras: layer<l>/<i>/conv<n>, kind: conv2d}
  - {torch: layer<l>.<i>.bn<n>, keras: layer<l>/<i>/bn<n>, kind: batch_norm}
  - {torch: layer<l>.<i>.downsample.0, keras: layer<l>/<i>/downsample/0, kind: conv2d}
  - {torch: layer<l>.<i>.downsample.1, keras: layer<l>/<i>/downsample/1, kind: batch_norm}
  - {torch: layer<l>.<i>, keras: layer<l>/<i>}
  - {torch: fc, keras: fc, kind: linear}
""",
    "reviews": """
inputs: ["ids: b 7, below 30"]
layers:
  - {torch: embed, keras: embed, kind: embedding}
  - {torch: gru, keras: gru, kind: bidirectional_gru}
  - {torch: norm, keras: norm, kind: layer_norm}
  - {torch: head, keras: head, kind: linear}
""",
    "encoder": """
inputs: ["image: b 3 12 8, from 0 to 1"]
layers:
  - {torch: conv<n>, keras: conv<n>, kind: conv2d}
  - {torch: norm, keras: norm, kind: group_norm}
  - {torch: hidden, keras: hidden, kind: linear, flatten: "c h w -> h w c", sizes: {h: 3, w: 2}, then: tanh}
  - {torch: mean, keras: mean, kind: linear}
  - {torch: logvar, keras: logvar, kind: linear}
""",
}
FIRST = {  # what the table of a twin with its channels first says otherwise
    "residual": ("c=3 h=11 w=9 -> b h w c", "3 11 9"),
    "encoder": (', flatten: "c h w -> h w c", sizes: {h: 3, w: 2}', ""),
}
TO_FIRST = ('ORDER = "channels_last"', 'ORDER = "channels_first"')
Edit = tuple[str, str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to import twins from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("twin", None)


VERIFY = ["verify", "model.pt", "model.keras", "--mapping", "my.yaml", "--json", "verdict.json"]


def ported(name: str, *edits: Edit, table: Edit = ("", "")) -> int:
    """Convert and verify a network whose twin has these edits; the exit code of the second."""
    convert(name, *edits, table=table)
    return main(VERIFY)


def convert(name: str, *edits: Edit, table: Edit = ("", "")) -> None:
    source = (TOYS / f"{name}_twin.py").read_text()
    for before, after in edits:
        assert source.count(before) == 1
        source = source.replace(before, after)
    Path("twin.py").write_text(source)
    sys.modules.pop("twin", None)
    assert table[0] in TABLES[name]
    head = f"format: 2\ntorch: tests.families.toys.{name}_net:build\nkeras: twin:build\n"
    Path("my.yaml").write_text(head + TABLES[name].replace(*table))
    net = import_module(f"tests.families.toys.{name}_net")
    torch.save(randomised(net.build()).state_dict(), "model.pt")
    assert main(["convert", "model.pt", "--mapping", "my.yaml", "--force"]) == 0


def is_exact() -> bool:
    """Whether every float64 error of the verdict is at rounding, far below the bound."""
    taps = json.loads(Path("verdict.json").read_text())["taps"]
    return len(taps) > 3 and all(max(tap["isolated"], tap["cumulative"]) < 1e-12 for tap in taps)


@pytest.mark.parametrize("name", TABLES)
def test_it_passes(project: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert ported(name) == 0
    assert "PASS  model.keras computes what model.pt computes" in capsys.readouterr().out
    assert is_exact()


@pytest.mark.parametrize("name", FIRST)
def test_with_its_channels_first(project: Path, name: str) -> None:
    assert ported(name, TO_FIRST, table=FIRST[name]) == 0
    assert is_exact()


@pytest.mark.full
@pytest.mark.parametrize("name", TABLES)
def test_it_is_recorded(project: Path, name: str) -> None:
    assert ported(name) == 0
    assert main(["record", "model.pt", "--mapping", "my.yaml"]) == 0
    assert main(["verify", "model.keras", "--against", "model.run.npz", "--mapping", "my.yaml"]) == 0


EDITS: dict[str, tuple[str, Edit, str]] = {
    "a missing residual": ("decoder", ("x = x + self.attention", "x = self.attention"), "blocks.0 -> blocks/0"),
    "a softmax over the queries": (
        "decoder",
        ("softmax(scores, axis=-1)", "softmax(scores, axis=-2)"),
        "blocks.0.attn -> blocks/0/attention, in what it feeds blocks.0.attn.out_proj",
    ),
    "another gelu": (
        "decoder",
        ("approximate=False", "approximate=True"),
        "blocks.0 -> blocks/0, in what it feeds blocks.0.down",
    ),
    "a token that sees the next": (
        "decoder",
        ('"bool"))', '"bool"), 1)'),
        "blocks.0.attn -> blocks/0/attention, in what it feeds blocks.0.attn.out_proj",
    ),
    "a missing shortcut": ("residual", ("ops.relu(y + x)", "ops.relu(y)"), "layer1.0 -> layer1/0"),
    "another epsilon": ("residual", ("epsilon=1e-5", "epsilon=1e-3"), "bn1 -> bn1"),
    "padding behind alone": (
        "residual",
        ("(1, 1), (1, 1), (0, 0)] if", "(0, 2), (0, 2), (0, 0)] if"),
        "the network itself, in what it feeds conv1",
    ),
    "a pooling padded with zeros": ("residual", (', -float("inf")', ""), ""),
    "another activation": ("reviews", ("GRU(6,", 'GRU(6, recurrent_activation="hard_sigmoid",'), "gru -> gru"),
    "the largest for the mean": (
        "reviews",
        ("GlobalAveragePooling1D", "GlobalMaxPooling1D"),
        "the network itself, in what it feeds norm",
    ),
    "Keras's own slope": (
        "encoder",
        ("LeakyReLU(negative_slope=0.2)(conv(8", "LeakyReLU()(conv(8"),
        "the network itself, in what it feeds conv2",
    ),
    "a missing bound": ("encoder", ("ops.clip(logvar, -1.0, 1.0)", "logvar"), "the network itself"),
    "exchanged outputs": ("encoder", ('{"mean": mean, "logvar": ops', '{"logvar": mean, "mean": ops'), "the network"),
}
"""Network, edit, and how the report begins on the first faulty layer; nothing for an edit that changes no value."""


QUICK = ("a missing residual", "a softmax over the queries", "padding behind alone", "a pooling padded with zeros",
         "another activation", "exchanged outputs")  # fmt: skip
"""One edit of each kind of place; `make parity` makes them all."""


@pytest.mark.parametrize(
    "edit", [each if each in QUICK else pytest.param(each, marks=pytest.mark.full) for each in EDITS]
)
def test_an_edit_of_the_source_is_found(project: Path, capsys: pytest.CaptureFixture[str], edit: str) -> None:
    name, change, place = EDITS[edit]
    convert(name, change)
    with few_cases():  # the first shows each of them
        assert main(VERIFY) == bool(place)
    out = capsys.readouterr().out
    assert "bidirectional True" not in out  # both directions of PyTorch's GRU are one layer of Keras's
    faulty = out.partition("all other layers' outputs replaced by the reference's:\n")[2]
    assert faulty.strip().startswith(place)
    assert bool(faulty) == bool(place)


def test_the_first_faulty_layer_runs_alone(project: Path) -> None:
    """`--repro` writes a script that makes the same error, and none once the twin is mended."""
    name, change, _ = EDITS["another epsilon"]
    convert(name, change)
    with few_cases():
        assert main([*VERIFY, "--repro", "alone"]) == 1
    twin = Path("twin.py").read_text()
    wrong = _script(project / "alone")
    (project / "twin.py").write_text(twin.replace(change[1], change[0]))
    mended = _script(project / "alone")
    assert wrong["now"] == pytest.approx(wrong["then"])
    assert mended["now"] < 1e-12 < 1e-5 < mended["then"]


def _script(folder: Path) -> dict[str, float]:
    """What the script prints of its one output, run as a user would, from anywhere."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "KERAS_BACKEND": "jax"}
    done = subprocess.run([sys.executable, folder / "repro.py"], cwd="/", capture_output=True, text=True, check=True,
                          env=environment)  # fmt: skip
    words = done.stdout.split()
    return {"now": float(words[1]), "then": float(words[3])}
