"""Networks with a difficulty each: faults that hide are named at their layer with a cause, and gaps are told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import wdport
from tests.command import Cli
from tests.families.toys import difficult
from tests.families.toys.nets import randomised
from wdport.errors import MisfitError

TABLE = """format: 2
torch: tests.families.toys.difficult:tricky
keras: tests.families.toys.difficult:{}
inputs: ["x: b 5"]
layers:
  - {{torch: inputs, keras: inputs, kind: linear}}
  - {{torch: plain, keras: plain, kind: layer_norm}}
  - {{torch: hidden, keras: hidden, kind: linear, then: relu}}
  - {{torch: norm, keras: norm, kind: batch_norm}}
  - {{torch: head, keras: head, kind: linear}}
tensors:
  - {{torch: loss_scale, drop: only the training loss uses it}}
"""


def verified(folder: Path, twin: str, change: tuple[str, str] = ("", "")) -> wdport.Verdict:
    """The toy's variances are tiny; its checkpoint has a tensor more than its network."""
    state = randomised(difficult.tricky()).state_dict()
    state["norm.running_var"] *= 1e-3
    torch.save({**state, "loss_scale": torch.ones(1)}, folder / "ck.pt")
    assert change[0] in TABLE
    (folder / "my.yaml").write_text(TABLE.format(twin).replace(*change))
    output = wdport.convert(folder / "ck.pt", folder / "out.keras", mapping=folder / "my.yaml").output
    return wdport.verify(folder / "ck.pt", output, mapping=folder / "my.yaml")


def test_it_passes(tmp_path: Path) -> None:
    verdict = verified(tmp_path, "tricky_twin")
    assert verdict.exit_code == 0
    assert "plain" in {tap.reference for tap in verdict.taps}


@pytest.mark.usefixtures("one_case")
@pytest.mark.parametrize(
    ("twin", "site", "cause"),
    [("wrong_plain", "plain", "epsilon (eps) 0.001 where the reference has 1e-05"),
     ("wrong_norm", "norm", "epsilon (eps) 0.001 where the reference has 0.0010000000474974513"),
     ("no_activation", "hidden", "lacks the relu that the table states after the module")],
)  # fmt: skip
def test_a_fault_is_named_with_its_cause(tmp_path: Path, twin: str, site: str, cause: str) -> None:
    verdict = verified(tmp_path, twin)
    assert verdict.exit_code == 1
    assert [each.feeds or each.reference for each in verdict.faults] == [site]
    assert [told for texts in verdict.causes.values() for told in texts] == [cause]


@pytest.mark.usefixtures("one_case")
def test_an_activation_that_the_table_does_not_state(tmp_path: Path) -> None:
    """The layer behind is off too: what the reference's module makes is handed on without the activation."""
    verdict = verified(tmp_path, "tricky_twin", (", then: relu", ""))
    assert [each.feeds or each.reference for each in verdict.faults] == ["hidden", "norm"]
    told = "has a relu that the reference's module does not have; if it follows the module, state `then: relu`"
    assert verdict.causes["hidden"] == (told,)


SIZED = """format: 2
torch: tests.families.toys.difficult:pooled
keras: tests.families.toys.difficult:{twin}
inputs: ["x: b 1 16 16"]
layers:
  - {{torch: conv, keras: conv, kind: conv2d}}
  - {{torch: pool, keras: pool, kind: max_pool2d}}
  - {{torch: head, keras: head, kind: linear, flatten: "c h w -> h w c", sizes: {{h: 8, c: 4}}}}
"""


def refusal(folder: Path, twin: str, extra: dict[str, torch.Tensor] | None = None) -> str:
    torch.save(difficult.pooled().state_dict() | (extra or {}), folder / "ck.pt")
    (folder / "my.yaml").write_text(SIZED.format(twin=twin))
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


PADDED = """format: 2
torch: tests.families.toys.difficult:padded
keras: tests.families.toys.difficult:{}
inputs: ["x: b c=3 t=12 -> b t c"]
layers:
  - {{torch: conv, keras: conv, kind: conv1d}}
  - {{torch: attn, keras: attn, kind: attention_packed}}
  - {{torch: head, keras: head, kind: linear}}
"""


@pytest.mark.usefixtures("one_case")
@pytest.mark.parametrize("twin", ["padded_twin", "padded_zeros"])
def test_padding_apart(tmp_path: Path, twin: str, cli: Cli) -> None:
    """With zeros the fault is the padding before the convolution, whose own settings are right. A recording does not
    say how it pads, so what the convolution makes of it is compared alone."""
    checkpoint, table, recording = tmp_path / "ck.pt", tmp_path / "my.yaml", tmp_path / "run.npz"
    torch.save(randomised(difficult.padded()).state_dict(), checkpoint)
    table.write_text(PADDED.format(twin))
    output = wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table).output
    verdict = wdport.verify(checkpoint, output, mapping=table)
    cli("record", checkpoint, "--mapping", table, "-o", recording)
    recorded = wdport.verify_recording(output, recording, mapping=table)
    assert verdict.exit_code == recorded.exit_code == (twin == "padded_zeros")
    assert {"conv", "attn", "attn.query"} <= {tap.reference for tap in verdict.taps}
    assert [fault.feeds for fault in verdict.faults] == (["conv"] if twin == "padded_zeros" else [])
    assert "padding_mode" not in str(verdict.causes)
    assert {fault.reference for fault in recorded.faults} == ({"conv"} if twin == "padded_zeros" else set())


SKIPPED = """format: 2
torch: tests.families.toys.difficult:skipping
keras: tests.families.toys.difficult:skipping_twin
inputs: ["x: b 5"]
layers:
  - {torch: <n>.main, keras: main<n>, kind: linear}
  - {torch: <n>.skip, keras: skip<n>, kind: linear}
"""


@pytest.mark.usefixtures("one_case")
def test_it_is_left_out_and_told(tmp_path: Path, cli: Cli) -> None:
    checkpoint, table, output, run = (tmp_path / name for name in ("ck.pt", "my.yaml", "out.keras", "run.npz"))
    torch.save(difficult.skipping().state_dict(), checkpoint)
    table.write_text(SKIPPED)
    wdport.convert(checkpoint, output, mapping=table)
    printed = " ".join(cli("verify", checkpoint, output, "--mapping", table).out.split())
    assert "not compared: 0.skip (no tensors, and no skip0 in Keras)" in printed
    cli("record", checkpoint, "--mapping", table, "-o", run)
    verdict = wdport.verify_recording(output, run, mapping=table)
    assert verdict
    assert {tap.reference for tap in verdict.taps} == {"0.main", "1.main", "1.skip", "output"}
