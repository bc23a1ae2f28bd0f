"""Faults found inside a file: what is wrong and what to do, without the path.

The parsers do not know which file they read, so they raise :class:`Fault`; the path is added once, at the boundary,
by :func:`~wdport.checkpoint.error_context.located`.
"""

from __future__ import annotations

from typing import Final

COPY_AGAIN: Final = "the file is damaged: copy or download it again"
NOT_WRITTEN_BY_TORCH: Final = "torch.save does not write this: get the file from its author again"
DO_NOT_LOAD: Final = "do not load it with torch either; get the file from a source that you trust"
LOAD_AND_SAVE: Final = "write a plain copy with torch: torch.save(torch.load(FILE), COPY)"
LOAD_TRUSTED: Final = "if you trust it, load it with its own code and torch.save(model.state_dict(), COPY)"
LOAD_CONTIGUOUS: Final = "load it with torch, call contiguous() on this tensor, and save a copy"
OTHER_DTYPE: Final = "load it with torch, make it a dense float32 tensor, and save a copy"
SPLIT_COMPLEX: Final = "drop it in the table (`drop:`), or save a copy with torch.view_as_real of it, two real parts"
AS_TENSORS: Final = "save its arrays as tensors: torch.save({NAME: torch.from_numpy(ARRAY), ...}, COPY)"
MERGE: Final = "merge it into the weights of its base model (peft: merge_and_unload()), and save the merged model"
DEQUANTIZE: Final = "take the checkpoint from before it was quantized, or dequantize it with its library and save that"
GATHER_FSDP: Final = "save it where it was trained with StateDictType.FULL_STATE_DICT, or ask its author for that"
MERGE_DCP: Final = "write one file: python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER model.pt"
SCALED: Final = "load it with its library, multiply by its scales if it has any, and save a copy as float32 or bfloat16"
ASK_FOR_TENSORS: Final = "load it with the library that made it, save plain float tensors, or ask its author for them"
RENAME: Final = "load it with torch, give all names the prefix or none, and save a copy"
RENAME_TEXT: Final = "load it with torch, give every tensor a short name, and save a copy"
DROP_ENTRY: Final = "load it with torch, delete this entry, and save a copy"
NO_WEIGHTS: Final = "ask its author for the weights: torch.save(model.state_dict(), PATH)"
GATHER: Final = "gather the full state_dict where it was trained, or ask its author for it"
SAVE_WITH_KERAS: Final = "Keras does not write this: save the model again with Keras 3, or convert it again"
WEIGHTS_FILE: Final = "give a PyTorch checkpoint or a safetensors file"


class Fault(Exception):
    """A fault in a file: what is wrong and what to do; ``part`` is the affected tensor or member, if any."""

    def __init__(self, what: str, fix: str = COPY_AGAIN, part: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.part = part


class UnsupportedTensor(Fault):
    """A valid tensor of an unsupported kind, which is harmless outside the weights."""
