"""docs/mapping.md: every table is read, every kind and rule that it names exists. CONTRIBUTING.md: its kind too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mapping.kinds_page import page, table
from wdport.mapping.axes import RULES, Shape, parse_rule
from wdport.mapping.kinds import KINDS
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.table import Table, parse_table

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "mapping.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)

SHAPES: list[tuple[dict[str, Shape], dict[str, Shape]]] = [
    (
        {"conv1.weight": (8, 3, 3, 3), "conv1.bias": (8,), "dense4.weight": (5, 72), "dense4.bias": (5,),
         "encoder.0.attn.in_proj_weight": (24, 8), "encoder.0.attn.in_proj_bias": (24,),
         "encoder.0.attn.out_proj.weight": (8, 8), "encoder.0.attn.out_proj.bias": (8,),
         "embed.weight": (7, 8), "head.weight": (7, 8)},
        {"conv1/kernel": (3, 3, 3, 8), "conv1/bias": (8,), "dense4/kernel": (72, 5), "dense4/bias": (5,),
         **{f"blocks/1/attention/{part}/kernel": (8, 2, 4) for part in ("query", "key", "value")},
         **{f"blocks/1/attention/{part}/bias": (2, 4) for part in ("query", "key", "value")},
         "blocks/1/attention/out/kernel": (2, 4, 8), "blocks/1/attention/out/bias": (8,), "embed/table": (7, 8)},
    ),
    (
        {"mid.attn.to_q.weight": (8, 8), "mid.attn.to_k.weight": (8, 8), "mid.attn.to_v.weight": (8, 8),
         "mid.attn.to_out.0.weight": (8, 8), "mid.norm.scale": (8,), "conv.weight": (6, 4, 3, 1)},
        {**{f"mid/attention/{part}/kernel": (8, 8) for part in ("query", "key", "value", "out")},
         "mid/norm/scale": (8,), "conv/kernel": (3, 4, 6)},
    ),
    (
        {f"rnn.{w}_{side}_l{at}": (8, *shape) for at in range(3) for side in ("ih", "hh")
         for w, shape in (("weight", (2,)), ("bias", ()))},
        {f"rnn_{at}/cell/{name}": shape for at in range(3)
         for name, shape in (("kernel", (2, 8)), ("recurrent_kernel", (2, 8)), ("bias", (8,)))},
    ),
    (
        {"position": (1, 9, 4), **{f"{n}.weight": (2, 3) for n in "qkv"}, "to_image.weight": (48, 5),
         "gate.bias_a": (2,), "gate.bias_b": (2,), "steps": (), "frequencies": (6,)},
        {"position": (1, 9, 4), "qkv/kernel": (3, 6), "to_image/kernel": (5, 48), "gate/bias": (2,)},
    ),
    ({"embed.weight": (7, 8), "lm_head.weight": (7, 8)}, {"embed/embeddings": (7, 8)}),
    ({"conv1.weight": (8, 3, 3, 3)}, {"conv1_conv/kernel": (3, 3, 3, 8), "conv1_conv/bias": (8,)}),
]  # fmt: skip


def table_of(text: str) -> Table:
    return parse_table((text if text.startswith("format") else f"format: 2\n{text}").encode(), "docs")


@pytest.mark.parametrize(("example", "shapes"), list(zip(EXAMPLES, SHAPES, strict=False)))
def test_an_example_makes_a_plan(example: str, shapes: tuple[dict[str, Shape], dict[str, Shape]]) -> None:
    plan = make_plan(table_of(example), *shapes, {"frequencies": (6,)} if "frequencies" in example else {})
    assert isinstance(plan, Plan), plan
    assert sorted(plan.targets) == sorted(shapes[1])


def test_the_example_of_a_section() -> None:
    (example,) = EXAMPLES[len(SHAPES) :]
    table = table_of(example)
    taps = [(tap.torch.text, tap.keras.text) for tap in table.taps if tap.when == "encoder"]
    assert taps == [("encoder.<level>.proj", "encoder_<level>/proj"), ("encoder.<level>", "encoder_<level>")]


def test_the_table_of_kinds_is_that_of_the_catalogue() -> None:
    assert page(TEXT) == TEXT, "run make kinds"
    assert all(f"`{name}`" in table() for name in KINDS)


def test_every_rule_that_is_shown_is_read() -> None:
    named = " ".join(TEXT.split()).partition("one of the names")[2].partition("which `wdport")[0]
    assert re.findall(r"`([a-z_0-9]+)`", named) == list(RULES)
    shown = re.findall(r"^\| `([^`]*->[^`]*)` \|", TEXT, re.MULTILINE)
    assert len(shown) == 5
    for text in shown:
        parse_rule(text, text)


def test_the_kind_in_contributing_is_the_one_in_the_code() -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert block is not None
    parts = re.findall(r"# in ALL of (\S+)\n(.*?)# in PAIRS of (\S+)\n(.*)", block[1], re.DOTALL)
    for path, code in (parts[0][:2], parts[0][2:]):
        assert _unformatted(code) in _unformatted((ROOT / path).read_text()), f"copy it from {path}"


def _unformatted(code: str) -> str:
    return re.sub(r"\s+", "", code).replace(",)", ")")
