"""The PyTorch networks of the pairs, each under the name of its pair."""

from .attention import encdec, fused, gpt, square, stack, tower, vit
from .images import first, mobilenet, norms, onet, resnet, style, twice, unet, vae
from .sequences import add, attacut, crepe, pointwise, resemblyzer, silero, speech, subtract, tagger, vocoder, whole

__all__ = [
    "add", "attacut", "crepe", "encdec", "first", "fused", "gpt", "mobilenet", "norms", "onet", "pointwise",
    "resemblyzer", "resnet", "silero", "speech", "square", "stack", "style", "subtract", "tagger", "tower", "twice",
    "unet", "vae", "vit", "vocoder", "whole",
]  # fmt: skip
