"""Known bugs of the autoencoder as a whole: what is encoded, what is decoded, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np

from parity_tests.faults.changes import rounded
from wdport.families.faults import Change, Mutant, array_of, calling, holding
from wdport.families.wan_vae import port as ports
from wdport.families.wan_vae.config import GROUP, Config
from wdport.families.wan_vae.stream import Frames, Stream
from wdport.model import KerasLayer, KerasModel, KerasTensor

NETWORK = ("",)


def network_mutants(config: Config) -> list[Mutant]:
    """The mutants that this configuration can have."""
    centre, spread = (np.asarray(each) for each in (config.latents_mean, config.latents_std))
    found = [
        Mutant("network: mean and log-variance exchanged", NETWORK, _split(lambda mean, logvar: (logvar, mean)),
               quick=True),
        Mutant("network: deviation for log-variance", NETWORK,
               _split(lambda mean, logvar: (mean, jnp.exp(0.5 * logvar)))),
        Mutant("network: latents in reverse order", NETWORK, _latents(lambda x: x[:, ::-1])),
        Mutant("network: channels of latents in reverse", NETWORK, _latents(lambda x: x[..., ::-1])),
        Mutant("network: latents' height and width exchanged", NETWORK, _latents(_turned)),
        Mutant("network: convolution of the moments left out", NETWORK, _left_out("quant_conv"), gate="0"),
        Mutant("network: convolution of the latents left out", NETWORK, _left_out("post_quant_conv"), gate="0"),
        Mutant("network: bfloat16 weights", NETWORK, rounded("bfloat16"), shares=True),
        Mutant("middle: attention first", ("*/mid",), calling(_attention_first)),
        Mutant("middle: both blocks with the first's weights", ("*/mid",), _same_weights, shares=True),
    ]  # fmt: skip
    if not config.is_residual:  # whose shortcuts do not take such a part
        found.append(Mutant("network: first part not special", NETWORK, _whole_groups, shares=True, quick=True))
    if config.z_dim == 1:
        found = [each for each in found if "channels of latents" not in each.name]
    if config.normalises:
        found.append(Mutant("network: latents normalised", NETWORK, _latents(lambda x: (x - centre) / spread),
                            quick=True))  # fmt: skip
    if config.patch > 1:
        found += [
            Mutant("patches: rows before columns, encoder", NETWORK, _patches("patchify")),
            Mutant("patches: rows before columns, decoder", NETWORK, _patches("unpatchify"), quick=True),
        ]
    return found


def _split(function: Callable[[KerasTensor, KerasTensor], tuple[KerasTensor, KerasTensor]]) -> Change:
    def change(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        own = model.split
        return patch.object(model, "split", lambda moments: function(*own(moments)))

    return change


def _latents(function: Callable[[KerasTensor], KerasTensor]) -> Change:
    """What is decoded is a function of the mean."""

    def change(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        own = model._decoded
        return patch.object(model, "_decoded", lambda mean: own(function(mean)))

    return change


def _turned(x: KerasTensor) -> KerasTensor:
    """As if flattened by rows and read by columns."""
    batch, frames, height, width, channels = x.shape
    return jnp.reshape(jnp.swapaxes(x, 2, 3), (batch, frames, height, width, channels))


def _whole_groups(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
    """The encoder takes the frames in groups from the first on."""

    def moments(x: KerasTensor) -> KerasTensor:
        stream, made = Frames(), []
        for at in range(0, x.shape[1], GROUP):
            last = min(at + GROUP, x.shape[1])
            made.append(model.encoder(x[:, last - GROUP : last], stream=stream))
            stream.next()
        count = (x.shape[1] - 1) // model.config.frames + 1
        return model.quant_conv(jnp.concatenate(made, axis=1)[:, :count])

    return patch.object(model, "_moments", moments)


def _left_out(name: str) -> Change:
    def change(_: KerasLayer, model: KerasModel) -> AbstractContextManager[object]:
        return patch.dict(model.__dict__, {name: lambda x: x})

    return change


def _patches(name: str) -> Change:
    """Patches whose rows and columns are exchanged."""
    own = getattr(ports, name)

    def wrong(x: KerasTensor, size: int) -> KerasTensor:
        return jnp.swapaxes(own(jnp.swapaxes(x, 2, 3), size), 2, 3)

    return lambda _, model: patch.object(ports, name, wrong)


def _attention_first(layer: KerasLayer, x: KerasTensor, stream: Stream) -> KerasTensor:
    return layer.resnet_1(layer.resnet_0(layer.attention_0(x), stream=stream), stream=stream)


def _same_weights(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    pairs = zip(layer.resnet_1.weights, layer.resnet_0.weights, strict=True)
    return holding(*((into, array_of(source)) for into, source in pairs))
