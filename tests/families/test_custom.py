"""Models of the user's own: each shape that a comparison has to cope with, through the public functions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import wdport
from tests.families.toys import nets

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


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5", ".safetensors"])
@pytest.mark.parametrize("name", TABLES)
def test_it_is_converted_and_verified(tmp_path: Path, name: str, suffix: str) -> None:
    if suffix != ".keras" and name not in ("image", "gru"):
        pytest.skip("one format is enough for this model")
    checkpoint, table = files(tmp_path, name)
    output = wdport.convert(checkpoint, tmp_path / f"out{suffix}", mapping=table).output
    verdict = wdport.verify(checkpoint, output, mapping=table)
    assert [gate.findings for gate in verdict.gates if not gate.passed] == []
    assert verdict.exit_code == 0
    worst = max(max(tap.isolated, tap.cumulative, tap.inputs) for tap in verdict.taps)
    assert worst < 1e-12
    assert json.loads(Path(f"{output}.wdport.json").read_text())["mapping"]["family"] == "custom"
