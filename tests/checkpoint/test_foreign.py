"""Checkpoints of other kinds: each is named for what it is, with what to do."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.command import Refused
from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.foreign import foreign_tensors

from .bad import refuse

T = torch.ones(4, 4)
LORA = {"base_model.model.q.lora_A.weight": T, "base_model.model.q.lora_B.weight": T}


FOLDERS: dict[str, tuple[list[str], str, str]] = {
    "adapter": (["adapter_config.json", "adapter_model.safetensors"], "is an adapter (PEFT", "merge_and_unload"),
    "old adapter": (["adapter_config.json", "adapter_model.bin"], "is an adapter (PEFT", "merge_and_unload"),
    "distributed": (["__0_0.distcp"], "torch.distributed.checkpoint without its .metadata", "copy"),
    "DeepSpeed": (["latest", "zero_to_fp32.py"], "DeepSpeed", "zero_to_fp32.py"),
    "ZeRO": (["zero_pp_rank_0_mp_rank_00_model_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"],
             "DeepSpeed", "zero_to_fp32.py"),
    "SavedModel": (["saved_model.pb"], "TensorFlow SavedModel", "from_tf"),
    "TensorFlow": (["checkpoint", "m.ckpt.index", "m.ckpt.data-00000-of-00001"], "TensorFlow checkpoint", "from_tf"),
    "TensorFlow in transformers": (["config.json", "tf_model.h5"], "TensorFlow checkpoint", "from_tf"),
    "Flax": (["config.json", "flax_model.msgpack"], "Flax", "from_flax"),
    "Orbax": (["_CHECKPOINT_METADATA", "manifest.ocdbt"], "Orbax", "PyTorch checkpoint"),
    "GGUF": (["model.Q4_K_M.gguf"], "GGUF", "made from"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FOLDERS)
def test_folders(kind: str, tmp_path: Path) -> None:
    names, what, fix = FOLDERS[kind]
    for name in names:
        (tmp_path / name).write_text("{}")
    refuse(tmp_path, what)
    refuse(tmp_path, fix)


def quantized() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear}, dtype=torch.qint8)


FILES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "array": ("a.npy", lambda path: np.save(path, np.ones(2)), "a numpy array; save its arrays as tensors"),
    "arrays": ("a.npz", lambda path: np.savez(path, w=np.ones(2)), "a numpy .npz archive"),
    "pickle": ("a.pkl", lambda path: path.write_bytes(pickle.dumps({"w": np.ones(2)})), "a pickle of numpy arrays"),
    "arrays of torch.save": ("a.pt", lambda path: torch.save({"w": np.ones(2)}, path), "holds numpy arrays"),
    "arrays under a key": ("a.pt", lambda path: torch.save({"model": {"w": np.ones(2)}}, path), "holds numpy arrays"),
    "an array among tensors": ("a.pt", lambda path: torch.save({"v": T, "w": np.ones(2)}, path),
                               "w: its state_dict entry is a numpy array"),
    "dynamic quantization": ("a.pt", lambda path: torch.save(quantized().state_dict(), path), "is quantized by torch"),
    "a quantized module": ("a.pt", lambda path: torch.save(quantized(), path), "0: is a quantized layer of torch"),
    "TensorFlow": ("m.ckpt.data-00000-of-00001", lambda path: path.write_bytes(bytes(99)), "TensorFlow"),
    "Flax": ("flax_model.msgpack", lambda path: path.write_bytes(b"\x81\xa3abc\xc7\x10"), "Flax"),
    "Equinox": ("a.eqx", lambda path: path.write_bytes(b'{"width": 4}\n\x93NUMPY\x01\x00'), "an Equinox file"),
    "TFLite": ("a.tflite", lambda path: path.write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(9)), "TensorFlow Lite"),
    "ZeRO": ("zero_pp_rank_0_mp_rank_00_model_states.pt",
             lambda path: torch.save({"module": {"w": T[:0]}}, path), "ZeRO"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*TypedStorage:UserWarning")
@pytest.mark.parametrize("kind", FILES)
def test_files(kind: str, tmp_path: Path) -> None:
    name, make, what = FILES[kind]
    make(tmp_path / name)
    refuse(tmp_path / name, what)


def test_numbers_of_numpy_next_to_a_state_dict_are_read(tmp_path: Path) -> None:
    torch.save({"model": {"w": T}, "loss": np.float64(0.5), "history": np.ones(3)}, tmp_path / "a.pt")
    with open_checkpoint(tmp_path / "a.pt") as checkpoint:
        assert list(checkpoint.tensors) == ["w"]


TENSORS = {
    "an adapter (LoRA) without its base model": [*LORA],
    "LoRA that are not merged": ["q.base_layer.weight", "q.lora_A.default.weight", "q.lora_B.default.weight"],
    "LoRA that are not merged, such as q.lora_A": ["q.weight", "q.lora_A", "q.lora_B"],
    "an adapter (LoRA)": ["unet_q.lora_down.weight", "unet_q.lora_up.weight", "unet_q.alpha"],
    "bitsandbytes": ["q.weight", "q.weight.absmax", "q.weight.quant_state.bitsandbytes__nf4"],
    "quantized by bitsandbytes: q.SCB": ["q.weight", "q.SCB", "q.weight_format"],
    "GPTQ or AWQ": ["q.qweight", "q.qzeros", "q.scales"],
    "FSDP": ["layers.0._flat_param"],
}


@pytest.mark.parametrize("what", TENSORS)
def test_tensors(what: str) -> None:
    fault = foreign_tensors(TENSORS[what])
    assert fault is not None
    assert what in fault.what
    assert foreign_tensors(["lora.weight", "a.alpha", "scb", "absmax_pool.weight", "a.scale"]) is None


def test_the_table_may_know_them(tmp_path: Path, refused: Refused) -> None:
    """A table with rows for LoRA gets its own faults; one without is told what the file is."""
    torch.save({"q.weight": T, "q.lora_A": T, "q.lora_B": T}, tmp_path / "a.pt")
    row = "format: 2\nkeras: tests.user_model:small\nlayers: [{torch: q, keras: q, kind: linear}]\n"
    (tmp_path / "t.yaml").write_text(row.replace("torch: q,", "torch: k,"))
    refused("convert", str(tmp_path / "a.pt"), "--mapping", str(tmp_path / "t.yaml"), code=4, says="LoRA that are not")
    known = [f"{{torch: q.{name}, drop: unused}}" for name in ("lora_A", "lora_B")]
    (tmp_path / "t.yaml").write_text(f"{row.replace('torch: q,', 'torch: k,')}tensors: [{', '.join(known)}]\n")
    refused("convert", str(tmp_path / "a.pt"), "--mapping", str(tmp_path / "t.yaml"), code=4, says="not a keras.Model")
