"""A table that does not fit ends with the layer that leaves another size, only where that can be the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import wdport
from tests.families.toys import sizes
from wdport.errors import MisfitError

TABLE = """format: 2
torch: tests.families.toys.sizes:net
keras: tests.families.toys.sizes:{twin}
inputs: ["x: b 1 16 16"]
layers:
  - {{torch: conv, keras: conv, kind: conv2d}}
  - {{torch: pool, keras: pool, kind: max_pool2d}}
  - {{torch: head, keras: head, kind: linear, flatten: "c h w -> h w c", sizes: {{h: 8, c: 4}}}}
"""


def refusal(folder: Path, twin: str, extra: dict[str, torch.Tensor] | None = None) -> str:
    torch.save(sizes.net().state_dict() | (extra or {}), folder / "ck.pt")
    (folder / "my.yaml").write_text(TABLE.format(twin=twin))
    with pytest.raises(MisfitError) as refused:
        wdport.convert(folder / "ck.pt", folder / "out.keras", mapping=folder / "my.yaml")
    return str(refused.value)


@pytest.mark.parametrize("twin", ["valid", "padded_apart"])
def test_a_pooling_that_leaves_another_size(tmp_path: Path, twin: str) -> None:
    told = refusal(tmp_path, twin)
    assert "head.weight does not fit" in told
    assert "pool: padding 'valid' gives 7 windows over 16 positions; the reference" in told


def test_not_for_a_tensor_too_many(tmp_path: Path) -> None:
    told = refusal(tmp_path, "strict", {"extra": torch.zeros(2)})
    assert told.endswith("unexpected extra (2,); correct the table, or the Keras model")


@pytest.mark.parametrize("twin", ["padded_pool", "subclassed"])
def test_not_where_the_padding_may_stand_before_the_layer(tmp_path: Path, twin: str) -> None:
    told = refusal(tmp_path, twin)
    assert "has shape" in told or "does not fit" in told
    assert told.endswith("correct the table, or the Keras model")
