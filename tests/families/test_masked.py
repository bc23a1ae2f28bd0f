"""Attention with masks: every form that PyTorch takes and Keras's own way to give it, and a fault in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch

import wdport
from tests.families.quick import network_verdict
from tests.families.toys import masked_nets
from tests.families.toys.nets import randomised
from wdport.cli.main import main

pytestmark = pytest.mark.usefixtures("one_case")

HEAD = "{torch: head, keras: head, kind: linear}"
MASKED = ('["x: b t=6 c=8", "keep: b t=6, mask"]', ["{torch: attn, keras: attn, kind: attention_packed}"])
NORM = "{torch: norm, keras: norm, kind: layer_norm}"
BEHIND = (MASKED[0], [*MASKED[1], NORM])
EMBED = "{torch: embed, keras: embed, kind: embedding}"
WORDS = ('["ids: b t=6, below 4", "keep: b t=6, mask"]', [EMBED, *BEHIND[1]])
LAYER = "encoder.layers.<n>."
ENCODER = (
    MASKED[0],
    [
        f"{{torch: {LAYER}self_attn, keras: attn_<n>, kind: attention_packed}}",
        f"{{torch: {LAYER}norm1, keras: one_<n>, kind: layer_norm}}",
        f"{{torch: {LAYER}norm2, keras: two_<n>, kind: layer_norm}}",
        f'{{torch: {LAYER}linear1, keras: "<n>_up", kind: linear, then: relu}}',
        f'{{torch: {LAYER}linear2, keras: "<n>_down", kind: linear}}',
    ],
)
DECODER = (
    '["x: b t=6 c=8", "memory: b s=9 c=8", "keep: b s=9, mask"]',
    [
        "{torch: decoder.layers.0.self_attn, keras: own, kind: attention_packed}",
        "{torch: decoder.layers.0.multihead_attn, keras: cross, kind: attention_packed}",
        "{torch: decoder.layers.0.norm<n>, keras: norm<n>, kind: layer_norm}",
        "{torch: decoder.layers.0.linear1, keras: up, kind: linear, then: relu}",
        "{torch: decoder.layers.0.linear2, keras: down, kind: linear}",
    ],
)
TABLES = {"behind": BEHIND, "masked": MASKED, "words": WORDS, "encoder": ENCODER, "decoder": DECODER}


class Files:
    """The checkpoint, the table and the converted file of a net and its twin."""

    def __init__(self, folder: Path, net: str, twin: str) -> None:
        inputs, rows = TABLES[net.partition("_")[0]]
        self.checkpoint, self.table, self.recording = folder / "ck.pt", folder / "my.yaml", folder / "run.npz"
        lines = ["format: 2", f"torch: tests.families.toys.masked_nets:{net}",
                 f"keras: tests.families.toys.masked_twins:{twin}", f"inputs: {inputs}", "layers:"]  # fmt: skip
        self.table.write_text("\n".join([*lines, *(f"  - {row}" for row in [*rows, HEAD]), ""]))
        torch.manual_seed(3)
        torch.save(randomised(getattr(masked_nets, net)()).state_dict(), self.checkpoint)
        self.output = wdport.convert(self.checkpoint, folder / "out.keras", mapping=self.table).output

    def verify(self) -> wdport.Verdict:
        return wdport.verify(self.checkpoint, self.output, mapping=self.table)

    def verify_recording(self) -> wdport.Verdict:
        assert main(["record", str(self.checkpoint), "--mapping", str(self.table), "-o", str(self.recording)]) == 0
        return wdport.verify_recording(self.output, self.recording, mapping=self.table)


RIGHT = [
    ("masked_left_out", "masked_padding_inverted"),
    ("masked_causal", "masked_causal"),
    ("masked_both", "masked_causal_padding"),
    ("masked_time_first", "masked_causal_padding"),
    ("masked_both_added", "masked_biased_padding"),
    ("masked_biased", "masked_biased"),
    ("masked_by_head", "masked_heads"),
    ("masked_by_head_added", "masked_heads_padding"),
    ("behind", "behind"),
    ("behind_fast", "behind"),
    ("words", "words"),
    ("encoder", "encoder"),
    ("encoder_first", "encoder_first"),
    ("encoder_both", "encoder_both"),
    ("decoder", "decoder"),
    ("decoder_first", "decoder_first"),
]
WRONG = {
    ("masked_padding", "masked_padding_inverted"): {"attn.out"},
    ("masked_padding", "masked_none"): {"attn.out"},
    ("masked_causal", "masked_off_by_one"): {"attn.out"},
    ("masked_biased", "masked_biased_sign"): {"attn.out"},
    ("masked_both_added", "masked_biased_sign_padding"): {"attn.out"},
    ("masked_by_head", "masked_heads_swapped"): {"attn.out"},
    ("words", "words_ignored"): {"attn.out"},
    ("encoder", "encoder_ignored"): {"encoder.layers.0.self_attn.out", "encoder.layers.1.self_attn.out"},
    ("decoder", "decoder_near"): {"decoder.layers.0.multihead_attn.out"},
    ("decoder", "decoder_ahead"): {"decoder.layers.0.self_attn.out"},
}
RECORDED = ["behind", "masked_both", "masked_by_head_added", "words", "encoder", "decoder"]
LONG = {"masked_left_out", "masked_time_first", "masked_biased", "encoder_first", "encoder_both", "decoder_first",
        "behind_fast"}  # fmt: skip
SHORT = ["behind", "words", "decoder"]
"""Recordings that are verified by default."""


def pairs(chosen: Iterable[tuple[str, str]], long: Callable[[str], bool]) -> list[object]:
    return [pytest.param(*pair, marks=pytest.mark.full if long(pair[0]) else ()) for pair in chosen]


@pytest.mark.parametrize(("net", "twin"), pairs(RIGHT, LONG.__contains__))
def test_a_mask_is_compared(tmp_path: Path, net: str, twin: str) -> None:
    verdict = Files(tmp_path, net, twin).verify()
    assert verdict.exit_code == 0, verdict
    assert all(gate.compared == gate.expected for gate in verdict.gates)
    attention = [tap.reference for tap in verdict.taps if tap.reference.endswith("attn")]
    assert {f"{name}.{part}" for name in attention for part in ("query", "key", "value", "out")} <= {
        tap.reference for tap in verdict.taps
    }


@pytest.mark.parametrize(("net", "twin"), pairs(WRONG, LONG.__contains__))
def test_a_wrong_mask_is_found_at_its_layer(
    tmp_path: Path, net: str, twin: str, capfd: pytest.CaptureFixture[str]
) -> None:
    files = Files(tmp_path, net, twin)
    verdict = network_verdict(files.checkpoint, files.output, mapping=files.table)
    assert verdict.exit_code == 1
    assert "Traceback" not in capfd.readouterr().err
    assert {fault.feeds or fault.reference for fault in verdict.faults} == WRONG[net, twin]


@pytest.mark.parametrize(
    ("net", "twin"), pairs((pair for pair in RIGHT if pair[0] in RECORDED), lambda net: net not in SHORT)
)
def test_a_recording_has_the_masks(tmp_path: Path, net: str, twin: str) -> None:
    verdict = Files(tmp_path, net, twin).verify_recording()
    assert verdict.exit_code == 0
    assert all(gate.compared == gate.expected for gate in verdict.gates)


@pytest.mark.parametrize(
    ("net", "twin"), pairs((pair for pair in WRONG if pair[0] in RECORDED), lambda net: net not in SHORT)
)
def test_a_recording_finds_a_wrong_mask(tmp_path: Path, net: str, twin: str) -> None:
    verdict = Files(tmp_path, net, twin).verify_recording()
    assert verdict.exit_code == 1
    assert {fault.feeds or fault.reference for fault in verdict.faults} == WRONG[net, twin]


def test_a_port_that_raises_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = Files(tmp_path, "masked_padding", "masked_padding_raises")
    assert main(["verify", str(files.checkpoint), str(files.output), "--mapping", str(files.table)]) == 4
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert line.startswith("error: attn: running it raises TypeError: and got incompatible shapes")
