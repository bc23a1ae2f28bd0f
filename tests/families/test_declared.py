"""Every field of every family's configuration says what it is, and refuses a wrong value in one line with its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from wdport.errors import UsageError
from wdport.families.ported import PortedFamily
from wdport.families.registry import find_family
from wdport.fields import Effect, Field, fields_of

WHOLE: dict[str, dict[str, Any]] = {
    "waveletdiff": {"level_lengths": [4, 4], "features": 1, "embed_dim": 8, "num_heads": 1, "num_layers": 1,
                    "time_embed_dim": 8},
    "ts2vec": {"input_dims": 1, "hidden_dims": 1, "output_dims": 1, "depth": 1, "kernel_size": 3},
    "unet2d": {"block_out_channels": [32], "down_block_types": ["DownBlock2D"], "up_block_types": ["UpBlock2D"],
               "num_train_timesteps": 1000},
    "masked_lm": {"vocab_size": 200_000, "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 1,
                  "pad_token_id": None},
    "wan_vae": {"dim_mult": [1, 2], "temperal_downsample": [True]},
}  # fmt: skip
"""A sound configuration of each family."""


def family(name: str) -> PortedFamily[Any]:
    found = find_family(name, name)
    assert isinstance(found, PortedFamily)
    return found


def declared(name: str) -> dict[str, Field]:
    return dict(fields_of(family(name).configuration))


FIELDS = [(name, field) for name in WHOLE for field in declared(name)]


def wrong(field: Field) -> Iterator[object]:
    """Values of another type, beyond each bound, and among no choices."""
    yield from ({"a": 1}, ["x", [1]], object())
    member = field.type.members[0]
    item = member.item or member
    values: list[object] = []
    if item.base is int:
        values = [True, 3.0, float("nan"), 10**99, -(10**99), 10**5000, "3", *([0.5] if member is item else [])]
    elif item.base is float:
        values = [True, "0.5", float("nan"), float("inf"), 10**400]
    elif item.base is bool:
        values = [1, 0.0, "true"]
    else:
        most = item._lengths[1]
        texts = ["no such choice", "9"] if item.choices else ["x" * (most + 1)] if most else []
        values = [3, True, 0.5, *texts]
    yield from ([value] for value in values) if member.item else values
    if not field.type.optional and None not in (item.choices.synonyms if item.choices else ()):
        yield from [] if item.choices and None in item.choices.values else [None]


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_wrong_value_is_refused_in_one_line_that_names_the_field(name: str, field: str) -> None:
    for value in wrong(declared(name)[field]):
        with pytest.raises(ValueError, match=r".") as caught:
            family(name).load_config({**WHOLE[name], field: value})
        message = str(caught.value)
        assert field in message, (value, message)
        assert len(message) < 300
        assert "\n" not in message
        assert "Expected" not in message  # msgspec's words


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_field_has_a_sentence_an_effect_and_a_sound_default(name: str, field: str) -> None:
    found = declared(name)[field]
    assert found.description.endswith(".")
    effects = [each for each in found.type.markers if isinstance(each, Effect)]
    assert len(effects) == 1, "state by one Effect what the field changes: NETWORK, SAMPLES, UNUSED"
    wording = family(name).configuration.wording
    assert found.required or found.checked(found.default, wording) == found.default


@pytest.mark.parametrize("name", WHOLE)
def test_unknown_names(name: str) -> None:
    assert family(name).load_config(WHOLE[name]).to_dict()
    with pytest.raises(ValueError, match="colour"):
        family(name).load_config({**WHOLE[name], "colour": 1})
    near = "num_heads" if name == "waveletdiff" else next(field for field in declared(name) if "_" in field)
    with pytest.raises(UsageError, match=f"did you mean {near}"):
        family(name).parse_setting(near[:-1], "1")  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="colour") as caught:
        family(name).parse_setting("colour", "1")  # type: ignore[attr-defined]  # every family has it
    assert "\n" not in str(caught.value)
