"""The transform as Keras layers, on Keras's JAX and torch backends with equal numbers.

They stay in float32 at full precision under any mixed-precision policy (float64 under a float64 one): in
bfloat16 the round trip alone loses 4e-2 of the signal.
"""

from __future__ import annotations

import keras
from keras import ops

from wdport.models.interface import Array
from wdport.models.interface import KerasTensor as Tensor
from wdport.uses.wavelets.plan import make_plan


class _MatrixLayer(keras.layers.Layer):
    """Multiply the second-to-last axis by a matrix (out, in): (..., in, F) to (..., out, F)."""

    def __init__(
        self, length: int, wavelet: str = "db2", mode: str = "symmetric", level: int | None = None, **kwargs: object
    ) -> None:
        policy = keras.dtype_policies.get(kwargs.pop("dtype", None) or keras.config.dtype_policy())
        wide = "float64" if policy.variable_dtype == "float64" else "float32"
        super().__init__(dtype=wide, autocast=False, **kwargs)
        self.plan = make_plan(length, wavelet, mode, level)
        self.arguments = {"length": length, "wavelet": wavelet, "mode": mode, "level": len(self.plan.stages)}

        self.matrix = self._full_matrix().astype(self.compute_dtype)
        self.built = True

    def _full_matrix(self) -> Array:
        raise NotImplementedError

    def call(self, x: Tensor) -> Tensor:
        if len(x.shape) < 2 or x.shape[-2] != self.matrix.shape[1]:
            # Keras rebuilds an error raised in a call from its class and a single string.
            raise ValueError(f"{self.name}: was given shape {tuple(x.shape)}; give (..., {self.matrix.shape[1]}, F)")
        matrix, x = ops.convert_to_tensor(self.matrix), ops.cast(x, self.compute_dtype)
        if keras.backend.backend() == "jax":
            import jax

            # JAX's default on a TPU or a GPU rounds float32 factors to bfloat16 or TF32.
            with jax.default_matmul_precision("highest"):
                return ops.matmul(matrix, x)
        return ops.matmul(matrix, x)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*input_shape[:-2], self.matrix.shape[0], input_shape[-1])

    def get_config(self) -> dict[str, object]:
        return {**super().get_config(), **self.arguments}


@keras.saving.register_keras_serializable("wdport")
class WaveletDecomposition(_MatrixLayer):
    """Transform series (..., N, F) to coefficients (..., C, F), laid out [cA_L, cD_L, ..., cD_1].

    Arguments as in :class:`WaveletTransform`; no weights.
    """

    def _full_matrix(self) -> Array:
        return self.plan.analysis()


@keras.saving.register_keras_serializable("wdport")
class WaveletReconstruction(_MatrixLayer):
    """Transform coefficients (..., C, F) to series (..., N, F); the inverse of :class:`WaveletDecomposition`."""

    def _full_matrix(self) -> Array:
        return self.plan.synthesis()

    def call(self, c: Tensor) -> Tensor:
        return super().call(c)
