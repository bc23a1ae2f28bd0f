"""Contexts in which functions of torch compute something else, or are seen by a handler."""

from __future__ import annotations

import functools
import inspect
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping
from unittest.mock import patch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, MultiheadAttention


@contextmanager
def by_submodules(module: Module) -> Iterator[None]:
    """Inside, torch's own encoders and masked attention compute as in training: ``torch.nn.TransformerEncoderLayer``
    calls its submodules in place of one function without calls to tap, ``torch.nn.TransformerEncoder`` keeps padding,
    and a query that sees no key gets zeros in place of NaN.
    """
    from torch import nn

    forward = nn.MultiheadAttention.forward

    @functools.wraps(forward)
    def attend(self: MultiheadAttention, *args: Any, **kwargs: Any) -> object:
        arguments = inspect.signature(forward).bind(self, *args, **kwargs).arguments
        # Without a mask, every query sees a key.
        if arguments.get("attn_mask") is None and arguments.get("key_padding_mask") is None:
            return forward(self, *args, **kwargs)
        with masked_rows(), _unfused():
            return forward(self, *args, **kwargs)

    with patch.object(nn.MultiheadAttention, "forward", attend):
        fused = any(isinstance(part, nn.TransformerEncoderLayer) for part in module.modules())
        with _unfused() if fused else nullcontext():
            yield


@contextmanager
def equals_in_order() -> Iterator[None]:
    """Inside, ``topk``, ``sort`` and ``argsort`` keep equal values in their order, as Keras's functions do; torch does
    not define their order. A router, for example, chooses among equal values if its inputs are zeros."""
    import torch

    original = torch.sort

    def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True, **out: Any) -> Any:
        return original(input, stable=True, dim=dim, descending=descending, **out)

    def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        order: Tensor = sort(input, dim, descending)[1]
        return order

    def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
        return torch.return_types.topk(tuple(part.narrow(dim, 0, k) for part in sort(input, dim, largest)))

    with ExitStack() as stack:
        for function in (sort, argsort, topk):
            for place in (torch, torch.Tensor):
                stack.enter_context(patch.object(place, function.__name__, function))
        yield


def _unfused() -> AbstractContextManager[object]:
    """A context whose only effect is that torch takes no fast path: it takes none under a ``TorchFunctionMode``."""
    return functions(lambda function, args, kwargs: function(*args, **kwargs))


def functions(
    answer: Callable[[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], object],
) -> AbstractContextManager[object]:
    """A context in which ``answer(function, args, kwargs)`` replaces every function of torch that is called."""
    from torch.overrides import TorchFunctionMode

    class Functions(TorchFunctionMode):
        def __torch_function__(
            self, function: Callable[..., Any], _: object, args: tuple[Any, ...] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> object:  # fmt: skip
            return answer(function, args, kwargs or {})

    return Functions()


def masked_rows() -> AbstractContextManager[object]:
    """Inside, ``torch.nn.functional.softmax`` is zero where all scores are -inf."""
    from torch.nn import functional

    return patch.object(functional, "softmax", softmax_of_masked)


def softmax_of_masked(scores: Tensor, dim: int = -1, **_: object) -> Tensor:
    """The softmax that is zero where all scores are -inf, as in ``scaled_dot_product_attention`` since torch 2.5."""
    return scores.softmax(dim).masked_fill((scores == -float("inf")).all(dim, keepdim=True), 0.0)


@contextmanager
def changed_setting(read: Callable[[], Any], change: Callable[[Any], object], value: object) -> Iterator[Any]:
    """Inside, a setting has this value; yields it as it is read back."""
    before = read()
    change(value)
    try:
        yield read()
    finally:
        change(before)


def highest_precision() -> AbstractContextManager[str]:
    """Inside, float32 matrix products run at full precision, whatever was set before; yields the setting."""
    import torch

    return changed_setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest")
