"""Variables for which PyTorch has no tensor: a table fills them with a constant, and all that follows checks it."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import torch

import wdport
from tests.command import Refused
from tests.families.toys import nets
from wdport.conversion.explain import from_plan, routes_of
from wdport.conversion.load import open_converted, sound_variables
from wdport.conversion.prepare import Settings, prepare
from wdport.families.registry import own_model
from wdport.parity.proving.suggest import Models, suggest
from wdport.uses.exporting.to_torch import to_torch

BIASES = ("conv/bias", "head/bias")


@pytest.mark.usefixtures("one_case")
def test_biases_that_pytorch_lacks_are_found_converted_verified_and_left_out_again(
    tmp_path: Path, refused: Refused
) -> None:
    toys = "tests.families.toys.{}:unbiased"
    found = suggest(Models(toys.format("nets"), toys.format("twins"), ("x: b 3 6 6",)))
    assert [row for row in found.rows if "fill" in row] == [{"keras": name, "fill": "zeros"} for name in BIASES]
    table, checkpoint = tmp_path / "my.yaml", tmp_path / "ck.pt"
    table.write_text(found.text())
    torch.save(nets.randomised(nets.unbiased()).state_dict(), checkpoint)

    output = wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table).output
    verdict = wdport.verify(checkpoint, output, mapping=table)
    assert verdict.exit_code == 0
    assert verdict.settings.of("differs") == []
    (note,) = [text for finding in verdict.gates[0].findings if "filled" in (text := str(finding))]
    assert note == "filled with zeros, since PyTorch has no tensor for it: conv/bias and 1 more"

    converted = open_converted(output, own_model(table, None, None, ()))
    with prepare(checkpoint, Settings(mapping=table)) as prepared:
        planned = from_plan(prepared)
    written = routes_of(output, Settings(mapping=table))
    for routes in (planned, written):
        (route,) = routes.explain("head/bias")
        assert (route.fate, route.reason, route.targets[0].shape, route.sources) == ("filled", "zeros", (5,), ())

    rounded = wdport.convert(checkpoint, f"{tmp_path}/out/", mapping=table, dtype="bfloat16", max_memory=1 << 20).output
    arrays = dict(sound_variables(open_converted(rounded, own_model(table, None, None, ()))))
    assert all(not np.any(arrays[name]) for name in BIASES)
    assert arrays.keys() == converted.variables.keys()

    back = to_torch(output, tmp_path / "back.pt", mapping=table).tensors
    state = torch.load(checkpoint)
    assert all(np.array_equal(array, state[name].numpy()) for name, array in back.items())
    assert back.keys() == {name for name in state if "num_batches" not in name}

    model = keras.saving.load_model(output)
    model.get_layer("conv").bias.assign([0, 0, 1e-9, 0])
    model.save(tmp_path / "trained.keras")
    says = "conv/bias: does not hold zeros any more, and the PyTorch model has no tensor for it"
    refused(
        "export",
        tmp_path / "trained.keras",
        "--to",
        "torch",
        "--like",
        checkpoint,
        "--mapping",
        table,
        code=4,
        says=says,
    )
    verdict = wdport.verify(checkpoint, tmp_path / "trained.keras", mapping=table)
    assert verdict.exit_code == 1
    assert any(finding.subject == "conv/bias" for finding in verdict.gates[0].findings)
