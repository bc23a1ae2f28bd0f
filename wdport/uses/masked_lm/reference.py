"""The PyTorch network that a port is compared with: the released class of transformers.

In float64 it is built and called lifted, because it explicitly computes norms, rotary position embeddings and softmax
in float32. Of the library's implementations of attention, ``eager`` is used: it adds the mask of padding to the logits
in code that can be lifted, and stays finite for a sequence of padding alone, where ``sdpa`` depends on the kernel that
torch chooses. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Final, cast

import torch
from torch import nn

from wdport.models.interface import Array, Stated
from wdport.recording.float64 import lifted
from wdport.uses.libraries import release, released_class
from wdport.uses.masked_lm.config import ROPE, Config

LIBRARY, CLASS = "transformers", "EuroBertForMaskedLM"
ATTENTION: Final = "eager"
TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def library_of() -> str:
    """The library's class and release; raises :class:`MachineError` without transformers."""
    released_class(LIBRARY, CLASS)
    return f"{CLASS} of {LIBRARY} {release(LIBRARY)}"


def library_arguments(config: Config, stated: Stated | None = None) -> dict[str, object]:
    """Arguments for the library's ``EuroBertConfig``: the ``stated`` fields as they are written, or those of
    ``config``."""
    if stated is not None:
        rotary = ROPE if "rope_theta" in stated.values else ()
        written = {name: value for name, value in stated.document.items() if name not in rotary}
        arguments = {**written, **stated.values, "bos_token_id": None, "eos_token_id": None}
        return {name: value for name, value in arguments.items() if (name, value) != ("mask_token_id", None)}
    arguments = config.to_dict()
    theta = arguments.pop("rope_theta")
    if config.mask_token_id is None:
        del arguments["mask_token_id"]
    rope = {"rope_type": "default", "rope_theta": theta}
    return {**arguments, "rope_parameters": rope, "bos_token_id": None, "eos_token_id": None}


def library_model(config: Config, stated: Stated | None = None) -> nn.Module:
    """The library's model with random weights; raises :class:`MachineError` without transformers."""
    model_class = released_class(LIBRARY, CLASS)
    settings = model_class.config_class.from_dict(library_arguments(config, stated))
    # Left to itself, the library would choose `sdpa`.
    settings._attn_implementation = ATTENTION
    return cast(nn.Module, model_class(settings))


def build_reference(
    config: Config, tensors: Mapping[str, Array], dtype: str, stated: Stated | None = None
) -> nn.Module:
    """The network in evaluation mode with these weights, every one of them used; ``dtype`` float32 or float64. A tied
    head has the embedding's own parameter. The library reads the configuration itself where it is ``stated``. Raises
    :class:`MachineError` without transformers."""
    with lifted() if dtype == "float64" else nullcontext():
        model = library_model(config, stated)
    kind = getattr(torch, dtype)
    state = {name: torch.from_numpy(array).to(kind) for name, array in tensors.items()}
    if config.tie_word_embeddings:
        state[HEAD] = state[TABLE]
    model.load_state_dict(state, assign=True)
    if config.tie_word_embeddings:
        # `assign` has replaced both parameters by separate ones, and gradients of a tied head are summed in one.
        model.get_submodule("lm_head").weight = model.get_submodule("model.embed_tokens").weight
    return model.eval()
