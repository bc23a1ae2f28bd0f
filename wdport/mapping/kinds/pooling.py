"""Poolings over windows."""

from __future__ import annotations

from wdport.mapping.catalog import layouts
from wdport.mapping.kinds.kind import Compared, Kind, TorchFunction, torch_classes

_SPATIAL = ("l", "h w", "d h w")


def _pool_parameters(which: str, rank: int) -> tuple[str, ...]:
    window = ("input", "kernel_size", "stride", "padding")
    if which == "max":
        return (*window, "dilation", "ceil_mode", "return_indices")
    return (*window, "ceil_mode", "count_include_pad", *(("divisor_override",) if rank > 1 else ()))


def _pool(which: str, rank: int, *more: Compared) -> Kind:
    spatial = _SPATIAL[rank - 1]
    return Kind(
        f"{which}_pool{rank}d",
        torch=torch_classes(f"{which.title()}Pool{rank}d"),
        functions=(
            TorchFunction(f"{which}_pool{rank}d", f"{which.title()}Pool{rank}d", _pool_parameters(which, rank)),
        ),
        keras=(f"{'Max' if which == 'max' else 'Average'}Pooling{rank}D",),
        axes=layouts(f"b c {spatial} -> b {spatial} c", f"b c {spatial}"),
        compared=(
            Compared("kernel_size", "pool_size", "tuple"),
            Compared("stride", "strides", "tuple"),
            Compared("padding", "padding", "padding"),
            Compared("ceil_mode", "padding", "ceil"),
            Compared("", "data_format", "channels"),
            *more,
        ),
        padded="any" if which == "max" else "zeros",
    )


_MAX = (Compared("dilation", "", "ones"), Compared("return_indices", "", "none"))
_MEAN = (Compared("count_include_pad", "padding", "counted"), Compared("divisor_override", "", "none"))

ALL = (
    *(_pool("max", rank, *_MAX) for rank in (1, 2, 3)),
    *(_pool("avg", rank, *(_MEAN[: 1 if rank == 1 else 2])) for rank in (1, 2, 3)),
)
