"""Name checkpoints of other kinds, by the names of their files and tensors, and say what to do with them.

Such a file is refused anyway; here it is only said what it is, which neither the format nor a mapping table shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from wdport.checkpoint.faults import AS_TENSORS, COPY_AGAIN, DEQUANTIZE, GATHER_FSDP, MERGE, Fault

_TENSORFLOW: Final = "load it in PyTorch (transformers 4: from_pretrained(..., from_tf=True)) and save that model"
_FLAX: Final = "load it in PyTorch (transformers 4: from_pretrained(..., from_flax=True)) and save that model"
_DEEPSPEED: Final = "merge its parts with the zero_to_fp32.py that DeepSpeed puts next to them, and give the result"
_ORIGIN: Final = "give the PyTorch checkpoint that it was made from"

_ADAPTER: Final = "adapter_config.json"

_FILES: Final = (
    (r"(bf16_|fp16_)?zero_pp_rank_\d+_mp_rank_\d+_(model|optim)_states\.pt", "a part of a DeepSpeed ZeRO checkpoint",
     _DEEPSPEED),
    (r".*\.distcp", "a part of a torch.distributed.checkpoint", "give its folder, which has a file .metadata"),
    (r".*\.data-\d{5}-of-\d{5}|.*\.ckpt\.(index|meta)", "a part of a TensorFlow checkpoint", _TENSORFLOW),
    (r"saved_model\.pb", "a TensorFlow SavedModel", _TENSORFLOW),
    (r".*\.msgpack", "a Flax checkpoint", _FLAX),
    (r".*\.eqx", "an Equinox file", _ORIGIN),
    (r".*\.tflite", "a TensorFlow Lite model", _ORIGIN),
)  # fmt: skip
"""Patterns of names of files whose first bytes do not tell what they are."""

_FOLDERS: Final = (
    (r".*\.distcp", "a folder of torch.distributed.checkpoint without its .metadata", COPY_AGAIN),
    (r"zero_to_fp32\.py|global_step\d+|(bf16_|fp16_)?zero_pp_rank_\d+_mp_rank_\d+_\w+\.pt|mp_rank_\d+_model_states\.pt",
     "a DeepSpeed checkpoint, whose weights are divided among files", _DEEPSPEED),
    (r"saved_model\.pb", "a TensorFlow SavedModel", _TENSORFLOW),
    (r".*\.data-\d{5}-of-\d{5}|tf_model\.h5", "a TensorFlow checkpoint", _TENSORFLOW),
    (r"flax_model.*\.msgpack", "a Flax checkpoint", _FLAX),
    (r"_CHECKPOINT_METADATA|manifest\.ocdbt", "an Orbax checkpoint of JAX", "give the PyTorch checkpoint"),
    (r".*\.gguf", "a folder of GGUF files", _ORIGIN),
)  # fmt: skip
"""Patterns of names in folders without a PyTorch checkpoint."""

_LORA: Final = re.compile(r"(^|[._])(lora_(A|B|down|up|embedding_A|embedding_B|magnitude_vector)|hada_w\d_[ab])(\.|$)")
_OF_TENSORS: Final = (
    (_LORA, "has weights of LoRA that are not merged, such as {}", MERGE),
    (re.compile(r"(\.quant_state\.bitsandbytes__\w+|\.absmax|\.quant_map|\.SCB)$"), "is quantized by bitsandbytes: {}",
     DEQUANTIZE),
    (re.compile(r"\.(qweight|qzeros)$"), "is quantized (GPTQ or AWQ): {}", DEQUANTIZE),
    (re.compile(r"\._packed_params(\.|$)"), "is quantized by torch: {}", DEQUANTIZE),
    (re.compile(r"(^|\.)_?flat_param(_\d+)?$"), "has the weights of FSDP flattened in one tensor: {}", GATHER_FSDP),
)  # fmt: skip


def refuse_file(name: str) -> None:
    """Refuse a file of another kind, by its name."""
    for pattern, kind, fix in _FILES:
        if re.fullmatch(pattern, name):
            raise Fault(f"is {kind}", fix)


def refuse_adapter(names: Sequence[str]) -> None:
    """Refuse a folder that has an adapter alone."""
    if _ADAPTER in names and any(name.startswith("adapter_model.") for name in names):
        raise Fault("is an adapter (PEFT, such as LoRA) without its base model", MERGE)


def refuse_folder(names: Iterable[str]) -> None:
    """Refuse a folder of another kind, by the names in it."""
    names = list(names)
    for pattern, kind, fix in _FOLDERS:
        if any(re.fullmatch(pattern, name) for name in names):
            raise Fault(f"is {kind}", fix)


def foreign_tensors(names: Iterable[str]) -> Fault | None:
    """Return what the tensors of a checkpoint are that no table fits, if their names tell."""
    names = list(names)
    for pattern, what, fix in _OF_TENSORS:
        marked = [name for name in names if pattern.search(name)]
        if marked:
            rest = [name for name in names if name not in set(marked) and not name.endswith(".alpha")]
            if pattern is _LORA and not rest:
                what = "is an adapter (LoRA) without its base model: {}"
            return Fault(what.format(marked[0]), fix)
    return None


def refuse_pickle(head: bytes) -> None:
    """Refuse a pickle whose first bytes name numpy."""
    if b"numpy" in head:
        raise Fault("is a pickle of numpy arrays, not a PyTorch checkpoint", AS_TENSORS)
