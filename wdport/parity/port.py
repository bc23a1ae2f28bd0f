"""Convert, load and verify checkpoints of your own model, described by its mapping table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wdport.base.errors import MisfitError
from wdport.base.options import PathText
from wdport.compare.activities import Say
from wdport.conversion.convert import Conversion, convert
from wdport.conversion.prepare import Settings, prepare
from wdport.conversion.stream import VariableStream
from wdport.families.registry import own_model, remember
from wdport.families.roles import Family
from wdport.files.atomic import scratch_folder
from wdport.models.interface import KerasModel

if TYPE_CHECKING:
    from wdport.parity.verdict import Verdict


@dataclass(frozen=True)
class Port:
    """A PyTorch model and its Keras port, as described by a mapping table, without a checkpoint.

    ::

        port = wdport.Port("my.yaml")
        model = port.load("model.pt")
        assert port.verify("model.pt")

    Args:
        mapping: path of the mapping table. Every method reads it and calls its functions again.
        model: ``module:function`` that builds the Keras model, if the table does not name it.
        reference: ``module:function`` that builds the PyTorch model, if the table does not name it.
        inputs: the inputs of the models, such as ``("x: b 3 48 48",)``, if the table does not state them.

    Raises:
        WdportError: the table cannot be read, or is for a model that comes with wdport.
    """

    mapping: PathText
    model: str | None = None
    reference: str | None = None
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._family()

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
        """Convert a checkpoint to a Keras file: :func:`wdport.convert` with this table.

        Args:
            checkpoint: as for :func:`wdport.convert`.
            output: ``.keras`` (default: next to the checkpoint), ``.safetensors`` or ``.weights.h5``.
            config: a YAML file with the arguments of the functions, if the table requires it.
            key: dotted key of the state_dict if the file holds more than one.
            force: replace an existing output.
            cast: accept float64 weights that float32 cannot hold exactly.
            allow_nonfinite: accept NaN and infinity among the weights.

        Returns:
            A :class:`wdport.Conversion`; ``output`` is the path of the written file.

        Raises:
            WdportError: the conversion failed; nothing is written.
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
        """Return the Keras model with the weights of a checkpoint, without writing a file.

        Args:
            checkpoint: as in :meth:`convert`.
            dtype: Keras dtype policy, such as "float64" (under JAX x64) or "mixed_bfloat16"; float32 if None.
            config: as in :meth:`convert`.
            key: as in :meth:`convert`.
            cast: as in :meth:`convert`.
            allow_nonfinite: as in :meth:`convert`.

        Returns:
            The model that the table's Keras function returns, built; its variables hold the float32 values that
            :meth:`convert` writes. :func:`wdport.sample` and :func:`wdport.export` accept it if the table
            has ``sampling:``.

        Raises:
            WdportError: a file is invalid, or the checkpoint, the table and the model do not match.
        """
        family = self._family()
        with prepare(checkpoint, Settings(config=config, mapping=self.mapping, key=key, own=family)) as prepared:
            model = family.build(prepared.config, dtype)
            from wdport.models.keras_runtime import set_variable, variables_by_path  # brings in jax

            variables = variables_by_path(model)
            for name, array in VariableStream(prepared, allow_nonfinite=allow_nonfinite, cast=cast).arrays():
                set_variable(variables[name], array)
            remember(model, family, prepared.config)
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
        fresh: bool = False,
        repro: PathText | None = None,
        say: Say | None = None,
        seed: int = 0,
        cases: int = 0,
    ) -> Verdict:
        """Run the Keras and the PyTorch model and compare them layer by layer: :func:`wdport.verify` with this table.

        Args:
            checkpoint: as in :meth:`convert`.
            converted: the file that :meth:`convert` wrote. Without it the checkpoint is converted to a temporary file.
            config: as in :meth:`convert`, for the temporary file.
            key: as in :meth:`convert`.
            cast: as in :meth:`convert`, for the temporary file.
            full: also compare bfloat16 and gradients.
            fresh: as in :func:`wdport.verify`.
            repro: folder for a reproduction of the first faulty layer, if there is one.
            say: called with a short text at every step, for a progress display.
            seed: seed of the random inputs.
            cases: number of additional random inputs.

        Returns:
            A :class:`wdport.Verdict`, true if the two models agree; ``gates`` and ``faults`` give details.

        Raises:
            WdportError: as for :func:`wdport.verify`.
        """
        if converted is None:
            with scratch_folder() as folder:
                output = Path(folder, f"{Path(checkpoint).stem}.keras")
                self.convert(checkpoint, output, config=config, key=key, cast=cast)
                return self.verify(checkpoint, output, key=key, full=full, fresh=fresh, repro=repro, say=say, seed=seed,
                                   cases=cases)  # fmt: skip
        from wdport.parity.verify import verify

        return verify(
            checkpoint, converted, mapping=self.mapping, key=key, reference=self.reference, full=full, repro=repro,
            say=say, model=self.model, inputs=self.inputs, seed=seed, cases=cases, fresh=fresh,
        )  # fmt: skip

    def _family(self) -> Family:
        family: Family | None = own_model(self.mapping, self.model, self.reference, self.inputs)
        if family is None:
            fix = "use wdport.convert and wdport.verify, which need no table for it"
            raise MisfitError(Path(self.mapping), "is the table of a model that comes with wdport", fix)
        return family
