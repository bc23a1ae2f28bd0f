"""Types of values that several modules here take and return."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Mapping, Sequence, Tuple, Union

    from numpy.typing import NDArray
    from torch import Tensor
    from torch.nn import Module

    Array = NDArray[Any]
    Nested = Union[Array, Sequence["Nested"]]
    """An array, or lists and tuples of them."""
    Factory = Callable[..., Any]
    """A user's function."""
    Given = Tuple[Tuple[object, ...], Mapping[str, object]]
    """Positional and keyword arguments of a module's call."""
    Compute = Callable[[Tuple[object, ...], Mapping[str, object]], object]
    Handle = Callable[[str, str, Module, Compute, Given], object]
    Fresh = Dict[Tuple[Module, str], Tensor]
    """Buffers as computed by the code, before a state_dict was loaded, by module and name."""
    Index = Dict[str, Any]
    """The index of the file, as JSON."""
