"""True float64: what code states as float32 is float64 too."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping
from unittest.mock import patch

from .errors import Refusal
from .nested import tensors_of
from .torch_functions import changed_setting, functions

if TYPE_CHECKING:
    from torch import dtype as Dtype
    from torch.nn import Module


_READING = frozenset({"view", "frombuffer"})
"""Functions of torch whose dtype argument describes raw bytes."""

_SUMS = frozenset({
    "matmul", "rmatmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "einsum", "tensordot", "addmm", "addmv", "addbmm",
    "baddbmm", "linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "scaled_dot_product_attention", "softmax", "log_softmax", "sum",
    "multi_head_attention_forward", "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm",
    "local_response_norm", "normalize", "nansum", "mean", "nanmean", "var", "std", "norm", "vector_norm", "prod",
    "cumsum", "cumprod", "logsumexp", "cdist", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "embedding_bag", "lstm", "gru", "rnn_tanh", "rnn_relu",
})  # fmt: skip
"""Functions of torch that add many numbers."""


@contextmanager
def lifted() -> Iterator[None]:
    """Inside, float32 is float64: it is the default dtype, and replaces float32 in the code.

    ``module.double()`` alone keeps tables that were computed in float32 and casts to float32 in the code: errors of
    2e-6. An epsilon that is that of the dtype, in ``nn.RMSNorm``, stays that of float32: it is a constant of the model.

    16 bits in the code stay: a rounding that is written down is part of the model, and what torch computes with its
    result has torch's dtype. Sums of many numbers in 16 bits, which no other library adds in the same order, raise
    :class:`Refusal`. The weights of a module that is converted as a whole, as by ``module.half()``, are only stored.
    """
    import torch

    sixteen = (torch.float16, torch.bfloat16)
    wide: dict[object, object] = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    wide_storage: dict[object, object] = dict.fromkeys(sixteen, torch.float64)
    # Tensor.type takes a class of tensors or its name as well as a dtype.
    for kind, lifts in (("Float", wide), ("Half", wide_storage), ("BFloat16", wide_storage)):
        lifts[getattr(torch, f"{kind}Tensor")], lifts[f"torch.{kind}Tensor"] = torch.DoubleTensor, "torch.DoubleTensor"
    storing: list[Module] = []
    convert: Callable[..., object] = torch.nn.Module._apply
    enter: Callable[..., object] = torch.autocast.__enter__

    def converting(module: Module, *args: Any, **kwargs: Any) -> object:
        storing.append(module)
        try:
            return convert(module, *args, **kwargs)
        finally:
            storing.pop()

    def entering(autocast: Any) -> object:
        if autocast._enabled and autocast.device == "cpu":
            what = "computes under torch.autocast, whose sums in 16 bits no port can repeat"
            raise Refusal(6, "the reference", what, "let the module use it only if self.training is true")
        return enter(autocast)

    def lift(value: object) -> object:
        # Only these are looked up: arrays and lists cannot be hashed.
        if not isinstance(value, (torch.dtype, type, str)):
            return value
        return wide_storage.get(value, wide.get(value, value)) if storing else wide.get(value, value)

    def in_float64(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        name = getattr(function, "__name__", "")
        # Methods of tensors that state the dtype by their name.
        if name == "float" or (storing and name in ("half", "bfloat16")):
            return args[0].double()
        if name == "rms_norm" and (args[3] if len(args) > 3 else kwargs.get("eps")) is None:
            args, kwargs = args[:3], {**kwargs, "eps": torch.finfo(torch.float32).eps}
        # torch.load makes an empty tensor of the stored dtype and gives it the stored bytes.
        empty = name in ("tensor", "empty") and bool(args) and _is_nothing(args[0])
        if name not in _READING and not empty:
            args, kwargs = tuple(map(lift, args)), {key: lift(value) for key, value in kwargs.items()}
        is_sixth = name == "hardsigmoid" and args[0].dtype is torch.float64 and torch.is_grad_enabled()
        result = _hardsigmoid(*args, **kwargs) if is_sixth else function(*args, **kwargs)
        if name.strip("_") in _SUMS and any(tensor.dtype in sixteen for tensor in tensors_of(result)):
            what = f"computes {name.strip('_')} in 16 bits, and no port can repeat the roundings of its sums"
            raise Refusal(6, "the reference", what, "compute it in float32, and round its result if need be")
        return result

    with default_dtype(torch.float64), functions(in_float64), ExitStack() as stack:
        stack.enter_context(patch.object(torch.nn.Module, "_apply", converting))
        stack.enter_context(patch.object(torch.autocast, "__enter__", entering))
        yield


def _hardsigmoid(input: Any, inplace: bool = False) -> Any:
    """``hardsigmoid`` with the same values: in float64 as well, torch's own gradient multiplies by the float32 number
    that is nearest to 1 / 6."""
    import torch

    result = torch.nn.functional.relu6(input + 3) / 6
    return input.copy_(result) if inplace else result


def _is_nothing(value: object) -> bool:
    """Whether these are the values, or the shape, of an empty tensor."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(size, int) and size == 0 for size in value[:1]) and len(value) < 2
    return isinstance(value, int) and value == 0


def default_dtype(dtype: Dtype) -> AbstractContextManager[Dtype]:
    """Inside, this is torch's default dtype; yields it."""
    import torch

    return changed_setting(torch.get_default_dtype, torch.set_default_dtype, dtype)
