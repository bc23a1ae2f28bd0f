"""Mixed precision, with gradients as near as PyTorch's; and boundaries, which keep a backward pass linear."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.test_util import check_grads

import wdport
from tests.make import SETTINGS, SMALL, make_module, make_state, save
from tests.uses.training.test_run import GIVEN, STATES
from wdport.nets.boundary import compile_options, once
from wdport.optimizers.torch_like import Adam
from wdport.uses.training import network_training as training
from wdport.uses.training.batches import TrainingBatches
from wdport.uses.training.network_training import step_options
from wdport.uses.training.placement import Placement
from wdport.uses.training.training_data import source_of
from wdport.uses.waveletdiff.reference import training_loss


def products(jaxpr: Any, names: str = "dot_general") -> list[tuple[str, ...]]:
    """The dtypes of the operands of every product in a program, with those inside."""
    found: list[tuple[str, ...]] = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == names:
            found.append(tuple(str(each.aval.dtype) for each in equation.invars))
        for value in equation.params.values():
            for inner in value if isinstance(value, (list, tuple)) else [value]:
                if hasattr(inner, "jaxpr") or hasattr(inner, "eqns"):
                    found += products(getattr(inner, "jaxpr", inner), names)
    return found


def test_the_network_computes_in_bfloat16_and_nothing_else(tmp_path: Path) -> None:
    converted = wdport.convert(save(tmp_path / "a.ckpt", make_state()), tmp_path / "a.keras", values=SETTINGS)
    model = wdport.load_model(converted.output, "mixed_bfloat16")
    trained = wdport.training_model(model)
    series = np.random.default_rng(0).normal(size=(60, 3))
    from wdport.uses.waveletdiff.family import FAMILY

    source = source_of(series, FAMILY.diffused(converted.config), trained.variable_dtype)
    assert source.length
    assert not source.streamed
    trained.compile(optimizer=Adam([{}], clip_norm=1.0))
    trained.optimizer.build(trained.trainable_variables)
    batches, state = TrainingBatches(source, 8, 0, Placement()), trained._get_jax_state(True, True, True, True)
    traced = jax.make_jaxpr(lambda state: trained.train_step(state, batches[0]))(state)
    kinds = products(traced.jaxpr)
    network = [each for each in kinds if each == ("bfloat16", "bfloat16")]
    others = [each for each in kinds if "bfloat16" not in each]
    assert len(network) > 100
    assert 0 < len(others) < 30  # the transform of the windows, the means of the levels, and their gradients
    assert not [each for each in kinds if len(set(each)) > 1]
    for values in state:
        floats = [leaf for leaf in values if jnp.issubdtype(leaf.dtype, jnp.floating)]
        assert {str(leaf.dtype) for leaf in floats} <= {"float32"}


@pytest.mark.usefixtures("exact")
@pytest.mark.full
def test_gradients_are_as_near_to_float64_as_those_of_autocast(tmp_path: Path) -> None:
    """`torch.autocast` with bfloat16 is the reference; both have noise, target and loss in float32."""
    converted = wdport.convert(save(tmp_path / "a.ckpt", make_state()), tmp_path / "a.keras", values=SETTINGS)
    random = np.random.default_rng(0)
    batch = {"clean": random.normal(size=(64, SMALL.coefficients, SMALL.features)), "uniform": random.random(64)}
    batch["noise"] = random.normal(size=batch["clean"].shape)
    alpha_bar = np.asarray(make_state()["alpha_bar_all"], np.float64)

    def ours(policy: str, dtype: str) -> np.ndarray:
        model = wdport.load_model(converted.output, policy)
        trained = wdport.training_model(model)
        loss = trained.diffusion_loss
        clean, noise, uniform = (jnp.asarray(batch[name], dtype) for name in ("clean", "noise", "uniform"))
        from wdport.uses.diffusion.loss import RandomBatch

        def value(variables: Any) -> Any:
            other = [variable.value for variable in model.non_trainable_variables]
            found, _ = model.stateless_call(
                variables, other, loss.noisy(clean, RandomBatch(noise, uniform)), training=False
            )
            return loss.total(loss.errors(found.astype(clean.dtype), clean, RandomBatch(noise, uniform)))

        compiled = jax.jit(jax.grad(value), compiler_options=step_options(model.compute_dtype))
        slopes = compiled([variable.value for variable in model.trainable_variables])
        return np.concatenate([np.asarray(each, np.float64).ravel() for each in slopes])

    def torchs(dtype: torch.dtype, cast: bool) -> np.ndarray:
        module = make_module().to(dtype).eval()
        given = {name: array.astype(str(dtype).removeprefix("torch.")) for name, array in batch.items()}
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            value, _ = training_loss(module, given, alpha_bar, SMALL.level_lengths, SMALL.prediction_target)
        torch.autograd.backward(value)
        return np.concatenate([each.grad.double().numpy().ravel() for each in module.parameters()
                               if each.grad is not None])  # fmt: skip

    def error(found: np.ndarray, wanted: np.ndarray) -> float:
        return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))

    exactly = ours("float64", "float64")
    reference = torchs(torch.float64, False)
    assert abs(np.linalg.norm(exactly) / np.linalg.norm(reference) - 1.0) < 1e-7  # tables were rounded to float32
    bound = 2.0 * error(torchs(torch.float32, True), reference)
    assert bound < 0.2
    assert error(ours("mixed_bfloat16", "float32"), exactly) < bound


def test_a_run_in_bfloat16_follows_the_run_in_float32(points: Any, tmp_path: Path) -> None:
    losses = []
    for policy in ("float32", "mixed_bfloat16"):
        model = wdport.load_model("a.keras", policy, mapping="flow.yaml")
        losses.append(wdport.train(model, STATES, tmp_path / policy, optimizer=Adam([{"lr": 1e-2}]), **GIVEN).losses)
    np.testing.assert_allclose(losses[1], losses[0], rtol=0.02)
    assert losses[0] != losses[1]


def test_fit_compiles_as_a_run_does(points: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also again where it is told to; a gradient passes one boundary."""
    asked: list[str] = []

    def options(dtype: str) -> dict[str, Any]:
        asked.append(dtype)
        return step_options(dtype)

    monkeypatch.setattr(training, "step_options", options)
    trained = wdport.training_model(points())
    trained.compile(optimizer=Adam([{"lr": 1e-2}], clip_norm=1.0))
    trained.fit(STATES, batch_size=35, epochs=2, verbose=0)
    trained.fit(STATES, batch_size=35, epochs=1, verbose=0)
    assert asked == ["float32"]
    state = tuple([variable.value for variable in variables] for variables in
                  (trained.trainable_variables, trained.non_trainable_variables, trained.optimizer.variables,
                   trained.metrics_variables))  # fmt: skip
    program = jax.make_jaxpr(trained.train_step)(state, (STATES,))
    barriers = [each for each in program.jaxpr.eqns if each.primitive.name == "optimization_barrier"]
    assert [len(each.invars) for each in barriers] == [len(trained.trainable_variables)]


def residual(boundary: Callable[[Any], Any], x: Any, kernels: Any) -> Any:
    """A pre-norm residual network over rows (B, D)."""
    for kernel in kernels:
        x = boundary(x)
        centred = boundary(x - x.mean(-1, keepdims=True))
        x = x + jnp.tanh(centred @ kernel)
    return jnp.sum(x**2)


def operations(boundary: Callable[[Any], Any], depth: int) -> float:
    """Element-wise operations and products of the compiled gradient; 256 rows of width 8, so products are few."""
    x, kernels = jnp.ones((256, 8)), [jnp.ones((8, 8))] * depth
    program = jax.jit(jax.grad(partial(residual, boundary), argnums=(0, 1)),
                      compiler_options=compile_options())  # fmt: skip
    found: Any = program.lower(x, kernels).compile().cost_analysis()
    return float(found["flops"])


def test_boundaries_keep_the_backward_pass_linear_in_the_depth() -> None:
    free, bound = (operations(boundary, 24) / operations(boundary, 12) for boundary in (lambda x: x, once))
    if free < 2.3:
        pytest.skip("this XLA repeats nothing without boundaries")
    assert bound < 2.1, (free, bound)


def test_boundaries_change_no_value_and_no_gradient() -> None:
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        x, kernels = rng.standard_normal((5, 4)), [rng.standard_normal((4, 4)) for _ in range(3)]
        slopes = [jax.value_and_grad(partial(residual, boundary), argnums=(0, 1)) for boundary in (once, lambda x: x)]
        found, wanted = (each(x, kernels) for each in slopes)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
        check_grads(partial(residual, once), (x, kernels), order=2, atol=1e-5, rtol=1e-5)


def test_programs_without_gradients_have_no_boundaries() -> None:
    lowered = jax.jit(lambda x, kernels: residual(once, x, kernels)).lower(jnp.ones((5, 4)), [jnp.ones((4, 4))])
    assert "optimization_barrier" not in lowered.as_text()
