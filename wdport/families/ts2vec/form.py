"""The configuration file of a TS2Vec encoder as a JSON Schema; its values must agree with the shapes."""

from __future__ import annotations

from wdport.declared import given
from wdport.families.ts2vec.config import BETWEEN
from wdport.families.ts2vec.resolve import NAMES

MEANINGS = {
    "input_dims": "Features of a time step, F.",
    "hidden_dims": "Channels of every block but the last, H.",
    "output_dims": "Channels of the last block and of the representation, D.",
    "depth": "Number of blocks before the last; block i dilates by 2^i.",
    "kernel_size": "Width of the convolutions, K; odd.",
}


def settings_schema() -> dict[str, object]:
    """Every name of a configuration file that is read; others concern training and are ignored."""
    return {
        "type": "object",
        "description": "Training configuration of a TS2Vec encoder. Shapes determine it; given values must agree.",
        "properties": {
            told: {
                "description": MEANINGS[name],
                "type": "integer",
                "minimum": BETWEEN[name][0],
                "maximum": BETWEEN[name][1],
                **({"not": {"multipleOf": 2}} if name == "kernel_size" else {}),
            }
            for told, name in NAMES.items()
        },
        "anyOf": [given(name) for name in NAMES],
    }
