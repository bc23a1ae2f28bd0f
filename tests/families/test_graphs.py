"""Models whose inputs have no batch axis, share sizes or are found by their names, with right and wrong twins: the
tables of the right ones are found and proved, and the wrong ones fail at the right layer."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

import wdport
from tests.parity.own_models import verify_own
from wdport.parity.proving.proof import prove
from wdport.parity.proving.suggest import Models, Suggestion, suggest
from wdport.parity.verdict import Verdict
from wdport.recording.input_text import read_inputs
from wdport.recording.record_file import record_file

GRAPHS, TWINS = "tests.families.toys.graphs", "tests.families.toys.graph_twins"

GRAPH = ("nodes: n=9..14 6", "edges: 2 e=14..25, below n")
MODELS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "edge_list": (GRAPH[::-1], "edge_list_turned", "second"),
    "dense": (("adj: n n", "x: n=9..14 6"), "dense_columns", "others"),
    "attended": (("x: n=9..14 6", "edges: 2 e=14..25, ids < n"), "attended_by_source", "gat"),
    "averaged": (("x: n=9..14 6", "edges: 2 e=14..25, below n"), "averaged_by_none", "layer"),
    "points": (("points: n=9..14 3",), "points_summed", "out.0"),
    "words": (("mask?: b t, mask", "ids: b t=8..20, below 50", "bias?: h=2 t t"), "words_visible", "proj"),
    "mixed": (("fine: b 6", "wide: b 6", "scale: b 8"), "mixed_turned", "left"),
}
"""The inputs, a wrong twin, and the layer at which it fails, or in whose inputs."""


def proved(name: str) -> Suggestion:
    suggestion = suggest(Models(f"{GRAPHS}:{name}", f"{TWINS}:{name}", MODELS[name][0]))

    def verify(table: Path, weights: Path, *_: object) -> Verdict:
        output = wdport.convert(weights, table.with_suffix(".weights.h5"), mapping=table).output
        return wdport.verify(weights, output, mapping=table)

    prove(suggestion, verify=verify)
    return suggestion


def module(name: str) -> torch.nn.Module:
    built: torch.nn.Module = getattr(importlib.import_module(GRAPHS), name)()
    return built


@pytest.mark.parametrize("name", MODELS)
def test_right_twins_are_proved_and_wrong_ones_fail_where_they_are(name: str, tmp_path: Path) -> None:
    _, wrong, layer = MODELS[name]
    right = proved(name)
    assert right.proved, right.failure or right.verdict
    stop = suggest(Models(f"{GRAPHS}:{name}", f"{TWINS}:{wrong}", MODELS[name][0])).stop
    assert stop is not None
    verdict = verify_own(tmp_path, right.text(), module(name), f"{GRAPHS}:{name}", f"{TWINS}:{wrong}", "weights.h5")
    assert verdict.exit_code == 1, verdict.summary()
    assert layer in f"{verdict.faults[0]}", verdict.summary()


def test_recordings_of_graphs_are_compared(tmp_path: Path) -> None:
    rows = "".join(f"  - {{torch: {n}.linear, keras: {n}/linear, kind: linear}}\n  - {{torch: {n}, keras: {n}}}\n"
                   for n in ("first", "second"))  # fmt: skip
    rows += "tensors:\n" + "".join(f"  - {{torch: {n}.bias, keras: {n}/bias, rule: identity}}\n"
                                   for n in ("first", "second"))  # fmt: skip
    table, checkpoint, recording = tmp_path / "t.yaml", tmp_path / "net.pt", tmp_path / "run.npz"
    table.write_text(f"format: 2\ntorch: {GRAPHS}:edge_list\nkeras: {TWINS}:edge_list\n"
                     f'inputs: ["{GRAPH[0]}", "{GRAPH[1]}"]\nlayers:\n{rows}')  # fmt: skip
    torch.save(module("edge_list").state_dict(), checkpoint)
    record_file(f"{GRAPHS}:edge_list", str(checkpoint), str(recording), inputs=read_inputs(GRAPH))
    outcomes = {}
    for twin in ("edge_list", "edge_list_turned"):
        model: dict[str, Any] = {"mapping": table, "model": f"{TWINS}:{twin}"}
        output = wdport.convert(checkpoint, tmp_path / f"{twin}.weights.h5", **model).output
        outcomes[twin] = wdport.verify_recording(output, recording, **model).exit_code
    assert outcomes == {"edge_list": 0, "edge_list_turned": 1}


def test_names_that_a_dictionary_lacks_are_refused(tmp_path: Path) -> None:
    models = Models(f"{GRAPHS}:mixed", f"{TWINS}:mixed", ("x: b 6", "y: b 6", "scale: b 8"))
    with pytest.raises(
        wdport.WdportError, match=r"takes the inputs scale, image.fine, image.wide, and those stated are"
    ):
        suggest(models)
