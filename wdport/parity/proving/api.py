"""``wdport.write_port``: what the command ``wdport port`` does, as a function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wdport.base.errors import UsageError

if TYPE_CHECKING:
    from wdport.parity.proving.port import WrittenPort


def write_port(
    target: str | Callable[..., Any],
    inputs: Sequence[str] = (),
    *,
    name: str = "",
    arguments: Mapping[str, object] | None = None,
    checkpoint: str | None = None,
    proof: bool = True,
) -> WrittenPort:
    """Write the Keras model of a PyTorch model and its mapping table, and prove that both models are equal.

    ::

        port = wdport.write_port("net:build", ["x: b 3 h=32..64 w=32..64"])
        assert port.proved
        Path("net_keras.py").write_text(port.source)
        Path("net_keras.yaml").write_text(port.table)

    Args:
        target: the function that builds the PyTorch model, or its name, such as ``my_project.model:build``.
            ``net:build/encoder.layers.0`` names a part of the model.
        inputs: its inputs; a model of transformers, timm or torchvision can do without.
        name: name of the Python module that the source is for, which the table states; the PyTorch module's with
            ``_keras`` by default.
        arguments: arguments of the function.
        checkpoint: path of a checkpoint, with whose weights the port is proved as well.
        proof: whether to prove the port.

    Raises:
        WdportError: the model cannot be built or run.
    """
    from wdport.parity.proving import port as porting
    from wdport.parity.proving.port_proof import prove_port

    port = porting.write_port(_name_of(target), inputs, name, arguments, checkpoint)
    if proof and port.written and not port.missing:
        prove_port(port, checkpoint)
    return port


def _name_of(target: str | Callable[..., Any]) -> str:
    if isinstance(target, str):
        return target
    module, name = getattr(target, "__module__", "__main__"), getattr(target, "__qualname__", "")
    if module == "__main__" or getattr(sys.modules.get(module), name, None) is not target:
        fix = "pass a function of a module that builds the model, which the table can name"
        raise UsageError(name or type(target).__name__, "cannot be imported by its name", fix)
    return f"{module}:{name}"
