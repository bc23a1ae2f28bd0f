"""Words of a correct diagnosis of known bugs that it cannot name, by the name of the bug."""

from __future__ import annotations

from typing import Final

FACTS: Final = {
    "heads merged without transposing": "heads merged with",
    "scale 1/sqrt(model width)": "logit scale 1/sqrt(width)",
    "attention without scale": "logit scale 1 where",
    "softmax over queries": "softmax over queries",
    "RMS norm epsilon 1e-5": "RMS norm: epsilon 1e-05 where",
    "layer norm epsilon 1e-3": "epsilon 0.001 where",
    "layer norm epsilon 1e-6": "epsilon 1e-06 where",
    "unbiased variance": "variance by n - 1 where",
    "adaptive scale plus one": "norm1.norm in it once too often",
    "SiLU before the adaptive layer": "activation: SiLU where the reference has none",
    "GELU by tanh": "GELU by tanh where",
    "ReLU for GELU": "ReLU where the reference has GELU",
    "SiLU for GELU": "SiLU where the reference has GELU",
    "GELU for SiLU": "GELU where the reference has SiLU",
    "residual from the normed input": "norm2 in it in place of",
    "cosines before sines": "mlp is fed is rolled by",
    "sines and cosines interleaved": "mlp is fed is in another order along axis 1",
    "position sines and cosines concatenated": "adds to its input what is in another order along axis 2",
    "position sines and cosines swapped": "adds to its input what is in another order along axis 2",
    "positions off by one": "adds to its input what is rolled by 1 along axis 1",
    "position table missing": "its output is the output of",
    "one level reversed in time": "is fed is reversed along axis 1",
    "outputs concatenated in reverse": "output is in another order along axis 1",
    "time of the first sample for all": "the first sample's for every sample",
    "scale of the first sample for all": "scale_embedding is fed is the first sample's for every sample",
    "scale's cosines before sines": "scale_embedding.mlp is fed is rolled by",
    "dropout on": "places and 1.11111 times",
    "tokens clipped at 30": "limited to -30 .. 30",
    "levels 0 and 1 swapped": "level_transformers.0 is fed is the input of level_transformers.1",
    "pooling softmax over the last axis": "softmax: axis 2 where",
    "gate input in the other order": "is fed is rolled by",
    "SiLU for sigmoid": "SiLU where the reference has sigmoid",
    "one minus the gate": "is 1 minus what it should be",
}
