"""Models of the user's own: each shape that a comparison has to cope with, through the public functions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import wdport
from tests.families.quick import few_cases
from tests.families.toys import nets
from wdport.cli.main import main
from wdport.errors import WdportError

TABLES = {
    "image": """
inputs: ["x: b 3 12 12"]
layers:
  - {torch: conv<n>, keras: conv<n>, kind: conv2d}
  - {torch: bn, keras: bn, kind: batch_norm}
  - {torch: pool, keras: pool, kind: max_pool2d}
  - {torch: act, keras: act, kind: prelu}
  - {torch: head, keras: head, kind: linear, flatten: "c h w -> h w c", sizes: {h: 4, w: 4}}
""",
    "words": """
inputs: ["ids: b 8, below 50"]
layers:
  - {torch: embed, keras: embed, kind: embedding}
  - {torch: norm, keras: norm, kind: layer_norm}
  - {torch: mean, keras: mean, kind: linear}
  - {torch: logvar, keras: logvar, kind: linear}
""",
    "shared": """
inputs: ["x: b 6", "y: b 6"]
layers:
  - {torch: mix, keras: mix, kind: linear}
tensors:
  - {torch: offset, keras: offset, rule: identity}
tied:
  - {torch: again.weight, same_as: mix.weight}
  - {torch: again.bias, same_as: mix.bias}
""",
    "gru": """
inputs: ["x: b 9 5"]
layers:
  - {torch: gru, keras: gru_<layer>, kind: gru}
  - {torch: head, keras: head, kind: linear}
""",
    "lstm": """
inputs: ["x: b 9 5"]
layers:
  - {torch: lstm, keras: lstm, kind: lstm}
  - {torch: head, keras: head, kind: linear}
""",
    "transformer": """
inputs: ["x: b 6 5"]
layers:
  - {torch: inputs, keras: inputs_, kind: linear}
  - {torch: blocks.<i>.norm<n>, keras: blocks/<i>/norm<n>, kind: layer_norm}
  - {torch: blocks.<i>.attn, keras: blocks/<i>/attention, kind: attention_packed}
  - {torch: blocks.<i>.mlp.0, keras: blocks/<i>/hidden, kind: linear}
  - {torch: blocks.<i>.mlp.2, keras: blocks/<i>/out, kind: linear}
  - {torch: blocks.<i>, keras: blocks/<i>}
  - {torch: head, keras: head, kind: linear}
tensors:
  - {torch: position, keras: position, rule: identity}
""",
}
HEAD = "format: 2\ntorch: tests.families.toys.nets:{torch}\nkeras: tests.families.toys.twins:{keras}\n"


def files(folder: Path, name: str, twin: str = "", change: tuple[str, str] = ("", "")) -> tuple[Path, Path]:
    """A checkpoint and a table."""
    torch.save(nets.randomised(getattr(nets, name)()).state_dict(), folder / "ck.pt")
    assert change[0] in TABLES[name]
    table = folder / "my.yaml"
    table.write_text(HEAD.format(torch=name, keras=twin or name) + TABLES[name].replace(*change))
    return folder / "ck.pt", table


FULLY = ("words", "shared")
"""Models whose gradients and bfloat16 are compared, too."""

CONVERTED = [
    *((name, ".keras", name in FULLY) for name in TABLES),
    ("image", ".weights.h5", False),
    ("gru", ".safetensors", False),
    pytest.param("transformer", ".keras", True, marks=pytest.mark.full),
]


@pytest.mark.parametrize(("name", "suffix", "full"), CONVERTED)
def test_it_is_converted_and_verified(tmp_path: Path, name: str, suffix: str, full: bool) -> None:
    checkpoint, table = files(tmp_path, name)
    output = wdport.convert(checkpoint, tmp_path / f"out{suffix}", mapping=table).output
    verdict = wdport.verify(checkpoint, output, mapping=table, full=full)
    assert [list(map(str, gate.findings)) for gate in verdict.gates if not gate.passed] == []
    assert not full or {gate.name for gate in verdict.gates} == {"0", "A", "B", "B'", "C"}
    assert verdict.exit_code == 0
    if name == "gru":  # PyTorch's module has two layers: its output is the last one's, which the one before it feeds
        assert [(tap.reference, tap.candidate) for tap in verdict.taps[:2]] == [("gru", "gru_1"), ("head", "head")]
    worst = max(max(tap.isolated, tap.cumulative, tap.inputs) for tap in verdict.taps)
    assert worst < 1e-12
    assert verdict.settings.of("differs") == []
    assert verdict.settings.compared > 5
    assert json.loads(Path(f"{output}.wdport.json").read_text())["mapping"]["family"] == "custom"


WRONG = {
    "the order of a flattened image": (
        ("c h w -> h w c", "h w c -> h w c"),
        'flatten "c h w -> h w c" agrees where "h w c -> h w c" does not',
    ),
    "an order that nobody states": (
        (', flatten: "c h w -> h w c", sizes: {h: 4, w: 4}', ""),
        'flatten "c h w -> h w c" agrees, with sizes {h: 4, w: 4}; the table states none',
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_fault_is_seen_at_its_layer(tmp_path: Path, fault: str) -> None:
    change, cause = WRONG[fault]
    checkpoint, table = files(tmp_path, "image", change=change)
    output = wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table).output
    with few_cases():
        verdict = wdport.verify(checkpoint, output, mapping=table)
    assert verdict.exit_code == 1
    assert {fault.reference or fault.feeds for fault in verdict.faults} == {"head"}
    assert [told for texts in verdict.causes.values() for told in texts] == [cause]


def test_a_converted_file_names_its_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which is not called for that."""
    checkpoint, table = files(tmp_path, "lstm")
    output = wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table).output
    assert main(["verify", str(checkpoint), str(output)]) == 4
    assert "built by tests.families.toys.twins:lstm" in capsys.readouterr().err


def test_a_function_of_another_model(tmp_path: Path) -> None:
    checkpoint, table = files(tmp_path, "lstm")
    with pytest.raises(WdportError) as error:
        wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table, model="tests.families.toys.bad:other_inputs")
    assert "no row of the table fills" in f"{error.value} {getattr(error.value, 'details', '')}"
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out.keras").exists()
