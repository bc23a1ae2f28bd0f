"""A model of your own and its table as one object: convert, load and verify its checkpoints from Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from wdport.conversion.apply import converted_arrays
from wdport.conversion.prepare import PathText, Settings, prepare
from wdport.conversion.river import Conversion, convert
from wdport.errors import MisfitError
from wdport.families.registry import own_model
from wdport.families.roles import Family
from wdport.model import KerasModel

if TYPE_CHECKING:
    from wdport.parity.verdict import Verdict


@dataclass(frozen=True)
class Port:
    """What a mapping table says of a PyTorch model and its Keras port; no checkpoint yet.

    ::

        port = wdport.Port("my.yaml")
        model = port.load("model.pt")
        assert port.verify("model.pt")

    Args:
        mapping: the table. It is read anew, and the functions are called anew, by every method.
        model: ``module:function`` of the Keras model, where the table does not name it.
        reference: ``module:function`` of the PyTorch model, where the table does not name it.
        inputs: what the models take, such as ``("x: b 3 48 48",)``, where the table does not say it.

    Raises:
        WdportError: the table cannot be read, or is not that of a model of your own.
    """

    mapping: PathText
    model: str | None = None
    reference: str | None = None
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._own()

    def convert(
        self,
        checkpoint: PathText,
        output: PathText | None = None,
        *,
        config: PathText | None = None,
        key: str | None = None,
        force: bool = False,
        cast: bool = False,
        allow_nonfinite: bool = False,
    ) -> Conversion:
        """Convert a checkpoint into a file: :func:`wdport.convert` with this table.

        Args:
            checkpoint: ``.pt``, ``.pth``, ``.ckpt`` or ``.safetensors`` file.
            output: ``.keras`` (default: beside the checkpoint), ``.safetensors`` or ``.weights.h5``.
            config: a YAML file with what the functions are called with, where the table asks for it.
            key: dotted key of the state_dict where the file holds more than one.
            force: replace an existing output.
            cast: accept float64 weights that float32 cannot hold exactly.
            allow_nonfinite: accept NaN and infinity among the weights.

        Returns:
            What was written and from what; ``output`` is its path.

        Raises:
            WdportError: nothing is written then.
        """
        return convert(
            checkpoint, output, config=config, mapping=self.mapping, key=key, model=self.model, force=force, cast=cast,
            allow_nonfinite=allow_nonfinite,
        )  # fmt: skip

    def load(
        self,
        checkpoint: PathText,
        *,
        dtype: str | None = None,
        config: PathText | None = None,
        key: str | None = None,
        cast: bool = False,
        allow_nonfinite: bool = False,
    ) -> KerasModel:
        """The Keras model with the weights of a checkpoint; no file is written.

        Args:
            checkpoint: as for :meth:`convert`, and so are ``config``, ``key``, ``cast`` and ``allow_nonfinite``.
            dtype: Keras dtype policy, such as "float64" (under JAX x64) or "mixed_bfloat16"; float32 if None.

        Returns:
            What the table's Keras function returns, built, its variables holding the float32 values that
            :meth:`convert` writes.

        Raises:
            WdportError: a file is bad, or checkpoint, table and model do not fit.
        """
        own = self._own()
        with prepare(checkpoint, Settings(config=config, mapping=self.mapping, key=key, own=own)) as prepared:
            model = own.build(prepared.config, dtype)
            from wdport.keras_runtime import set_variable, variables_by_path  # brings in jax

            variables = variables_by_path(model)
            for name, array in converted_arrays(prepared, allow_nonfinite, cast):
                set_variable(variables[name], array.copy())
        return model

    def verify(
        self,
        checkpoint: PathText,
        converted: PathText | None = None,
        *,
        config: PathText | None = None,
        key: str | None = None,
        cast: bool = False,
        full: bool = False,
        repro: PathText | None = None,
        say: Callable[[str], None] | None = None,
    ) -> Verdict:
        """Compare the Keras model with PyTorch's, both running, layer by layer: :func:`wdport.verify` with this table.

        Args:
            checkpoint: as for :meth:`convert`, and so is ``key``.
            converted: what :meth:`convert` wrote. Without it the checkpoint is converted into a temporary file, for
                which ``config`` and ``cast`` are as for :meth:`convert`.
            full: compare bfloat16 and gradients as well.
            repro: a folder to write the first faulty layer to, if there is one.
            say: called with a few words at every step, for a progress display.

        Returns:
            A verdict, true if the two are equal; ``gates`` and ``faults`` say more.

        Raises:
            WdportError: a file is bad, the two do not belong together, torch is missing, or something could not be
            compared.
        """
        if converted is None:
            with TemporaryDirectory(prefix="wdport-") as folder:
                output = Path(folder, f"{Path(checkpoint).stem}.keras")
                self.convert(checkpoint, output, config=config, key=key, cast=cast)
                return self.verify(checkpoint, output, key=key, full=full, repro=repro, say=say)
        from wdport.parity.verify import verify

        return verify(
            checkpoint, converted, mapping=self.mapping, key=key, reference=self.reference, full=full, repro=repro,
            say=say, model=self.model, inputs=self.inputs,
        )  # fmt: skip

    def _own(self) -> Family:
        own: Family | None = own_model(self.mapping, self.model, self.reference, self.inputs)
        if own is None:
            fix = "use wdport.convert and wdport.verify, which need no table for it"
            raise MisfitError(Path(self.mapping), "is the table of a model that wdport brings along", fix)
        return own
