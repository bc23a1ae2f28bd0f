"""Gate training mode (M): loss, gradients, running statistics and optimizer steps of both models in training mode.

Both sides take five steps each of SGD, of Adam, and of AdamW with two groups, clipping, a schedule and the gradients of
two batches; every optimizer begins with the weights of the files, one after another, since the states of all do not fit
with 63 million parameters. The port takes every step from the reference's state, so that a step's error is its own.
What is random is replaced on both sides: see :mod:`wdport.parity.random_draws`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.backend.common.masking import get_keras_mask

from wdport.base.jax_settings import FAST_COMPILE
from wdport.compare.calls import Case
from wdport.compare.findings import GATES, Finding, Gate, fact, measure, notice
from wdport.compare.gate_bounds import GRADIENT
from wdport.compare.measure import ScaledErrors, relative_l2
from wdport.compare.probe import tensors, training_call
from wdport.compare.programs import CompiledProgram, trim_memory
from wdport.conversion.load import Converted
from wdport.conversion.optimizer_file import DECOUPLED, SETTINGS, Kind
from wdport.conversion.prepare import Prepared
from wdport.models.interface import Array, KerasModel
from wdport.models.keras_runtime import exact_float64, layers_by_path, set_variable, variable_values, variables_by_path
from wdport.optimizers.schedules import Schedule
from wdport.optimizers.torch_like import SGD, Adam
from wdport.parity.gradient_gate import moved_gradients, variable_errors
from wdport.parity.model_pair import Sides, converted_weights
from wdport.parity.optimizer_steps import OptimizerPair
from wdport.parity.random_draws import SampleDraws, repeatable
from wdport.recording.float64 import lifted
from wdport.recording.nested import tensors_of
from wdport.recording.torch_functions import functions

if TYPE_CHECKING:
    import torch

STEPS: Final = 5
BATCH: Final = 4
"""Samples of a batch; statistics of two would be the same for all values."""


@dataclass(frozen=True)
class OptimizerRecipe:
    """A new optimizer: its torch class, and the hyper-parameters that it has besides the weight decay.

    ``decayed`` is the weight decay of parameters of two axes and more, ``others`` that of the other ones. With
    ``full``, the rate has a warm-up and falls by a cosine, gradients are clipped, and a step takes two batches.
    """

    name: str
    options: Mapping[str, Any]
    decayed: float
    others: float
    full: bool = False


RECIPES: Final = (
    OptimizerRecipe("SGD", {"lr": 1e-2, "momentum": 0.9, "nesterov": True}, 0.01, 0.01),
    OptimizerRecipe("Adam", {"lr": 1e-3, "betas": (0.9, 0.99)}, 0.01, 0.01),
    OptimizerRecipe("AdamW", {"lr": 1e-3, "betas": (0.8, 0.95)}, 0.1, 0.0, full=True),
)
BATCHES: Final = 2
"""Batches of a step with ``full``."""

DIVERGED: Final = 100.0
"""How many times the first loss, plus one, the loss may be before a step starts from the weights of the files again:
the rate of SGD is too high for some models, whose loss is infinite after five steps."""

REPEATS: Final = 1e-9
"""How far the losses of two runs may differ; sums of scattered values have no order."""

UNBIASED: Final = " times n / (n - 1)"
"""The part of a moving variance whose error is measured as if it were updated with the unbiased variance."""

SINGULAR: Final = ("zeros", "constant")
"""Samples at which functions often have no slope."""


class TrainingStart:
    """The models of both sides in float64, whose weights are remembered before other gates change them."""

    def __init__(self, prepared: Prepared, converted: Converted, sides: Sides) -> None:
        self.prepared, self.converted, self.sides = prepared, converted, sides
        self.signature = prepared.family.signature(prepared.config)
        self.begin = {name: tensor.clone() for name, tensor in sides.references["float64"].state_dict().items()}

    def restore(self) -> tuple[torch.nn.Module, KerasModel]:
        """PyTorch's model with the weights of the checkpoint, and the port with those of the converted file."""
        self.sides.reference.use(False)
        module, model = self.sides.references["float64"], self.sides.candidates["float64"]
        module.load_state_dict(self.begin)
        # Where the conversion computes, its float64 result: the rounding in the file is no error of a training step.
        values = converted_weights(self.prepared, self.converted).float64
        with jax.enable_x64(True):
            for path, variable in variables_by_path(model).items():
                set_variable(variable, values[path])
        return module, model


def with_keras_statistics(gate: Gate) -> Gate:
    """The gate, if Keras's BatchNormalization may update the moving variance with the biased variance: what counts is
    the error that the factor between both leaves."""
    left = {reading.subject for reading in gate.measures if reading.part == UNBIASED}
    return replace(gate, measures=tuple(reading for reading in gate.measures
                                        if reading.subject not in left or reading.part == UNBIASED))  # fmt: skip


def training_mode_gate(start: TrainingStart) -> Gate:
    """Take the steps and compare; both sides' weights change."""
    module, model = start.restore()
    draws = SampleDraws(BATCH)
    with jax.enable_x64(True), jax.default_matmul_precision("highest"), exact_float64(), lifted(), repeatable(draws):
        was_training = module.training
        module.train()
        try:
            return _Steps(start, module, model, draws).gate()
        finally:
            module.train(was_training)


class BiasedVariances:
    """The running variances of a module after one pass if they were updated with the biased variance of the batch,
    and the number of values of each call, by the buffer's name."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.values: dict[str, torch.Tensor] = {}
        self.counts: dict[str, list[int]] = {}
        self._names = {id(buffer): name for name, buffer in module.named_buffers()}

    def watch(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Compute a function; a handler for :func:`wdport.recording.torch_functions.functions`."""
        if getattr(function, "__name__", "") == "batch_norm":
            names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum")
            options = {**dict(zip(names, args, strict=False)), **kwargs}
            name = self._names.get(id(options.get("running_var")))
            if name is not None and options.get("training"):
                tensor, momentum = options["input"].detach(), options.get("momentum", 0.1)
                axes = [axis for axis in range(tensor.ndim) if axis != 1]
                before = self.values.get(name, options["running_var"])
                self.values[name] = (1 - momentum) * before + momentum * tensor.var(axes, unbiased=False)
                self.counts.setdefault(name, []).append(tensor.numel() // tensor.shape[1])
        return function(*args, **kwargs)


class _Steps:
    """Both sides, and the largest error so far by what is compared."""

    def __init__(
        self, start: TrainingStart, module: torch.nn.Module, model: KerasModel, draws: SampleDraws
    ) -> None:  # fmt: skip
        self._prepared, self._module, self._model, self._begin = start.prepared, module, model, start.begin
        self._reference, self._signature = start.sides.reference, start.signature
        self._variables = variables_by_path(model)
        self._program = CompiledProgram(self._port_step, FAST_COMPILE)
        self._errors: dict[str, float] = {}
        self._causes: dict[str, Finding | None] = {}
        self._unbiased: dict[str, float] = {}
        self._diverged: dict[str, Finding] = {}
        self._masked, self._moving = False, set[str]()
        self._draws, self._reversed = draws, False
        self._biased = BiasedVariances(module)

    def gate(self) -> Gate:
        if (text := self._random()) is not None:
            return GATES["M"].gate(0, 1, (), (fact(text, kind="missing"),))
        for index, recipe in enumerate(RECIPES):
            self._train(recipe, index * STEPS)
        singular = [fact(text, subject, "unequal") for subject, text in self._singular().items()]
        causes = {path: cause for path, cause in self._causes.items() if cause is not None}
        measures = (
            *(measure(name, "error", error, "gradient") for name, error in self._errors.items()),
            *(measure(path, "error", self._unbiased[path], "gradient", UNBIASED) for path in causes),
        )
        missing = [fact(f"the gradient by {name} was not compared", name, "missing") for name in self._uncompared()]
        findings = (*self._frozen(), *self._still(), *self._shared_masks(), *self._unlike_pytorch(), *causes.values(),
                    *self._diverged.values(), *singular, *missing)  # fmt: skip
        return GATES["M"].gate(len(self._errors), len(self._errors) + len(missing), measures, findings)

    def _train(self, recipe: OptimizerRecipe, first: int) -> None:
        """Take the steps of a new optimizer from the weights of the files, with the batches from number ``first``."""
        self._module.load_state_dict(self._begin)
        pair: OptimizerPair | None = None
        initial = 0.0
        for batch in range(STEPS * (BATCHES if recipe.full else 1)):
            inputs = self._reference.inputs(Case(first + batch, BATCH, 1.0))
            self._draws.step(first + batch)
            # Those that a step trains are equal to the reference's.
            before = self._moved(set(self._variables) - (set() if pair is None else pair.compared))
            expected = self._torch(inputs)
            initial = expected if pair is None else initial
            if pair is not None and not abs(expected) <= DIVERGED * (abs(initial) + 1.0):
                self._diverged[recipe.name] = notice(f"{recipe.name} diverged, and started again from the weights")
                self._module.load_state_dict(self._begin)
                before = self._moved(set(self._variables))
                expected = self._torch(inputs)
            self._set(before)
            gradients = self._gradients()
            applied = moved_gradients(self._prepared, gradients)
            none = {name: np.zeros(tuple(p.shape)) for name, p in self._trained().items() if name not in gradients}
            every = moved_gradients(self._prepared, {**none, **gradients}) if none else applied
            ours = expected, self._signature.in_port(inputs), first == batch == 0
            loss, slopes, state = self._port_like(*ours)
            if max(variable_errors(slopes, every).values(), default=0.0) > GRADIENT and self._program.optimize():
                loss, slopes, state = self._port_like(*ours)
            self._add("loss", relative_l2(loss, np.asarray(expected)))
            for name, error in variable_errors(slopes, every).items():
                self._add(f"gradient of {name}", error)
            self._statistics(state)
            if gradients and pair is None:
                pair = self._pair(recipe, gradients)
            if pair is not None:
                pair.applied = applied
            del before, loss, slopes, state, gradients, applied, none, every  # at 63 million parameters, 1.5 GB
            trim_memory()
            if pair is not None:
                if recipe.full and batch % BATCHES == 0:
                    self._add_all(pair.rates(batch // BATCHES))
                pair.step()
                trim_memory()
        if pair is not None:
            self._add_all(pair.errors())

    def _random(self) -> str | None:
        """What PyTorch's model draws although dropout is replaced; None if its loss repeats itself."""
        import torch

        inputs, losses = self._reference.inputs(Case(0, BATCH, 1.0)), list[float]()
        for _ in range(2):
            self._module.load_state_dict(self._begin)
            losses.append(self._torch(inputs))
        if not abs(losses[0] - losses[1]) > REPEATS * (abs(losses[0]) + 1.0):
            return None
        recurrent = [name for name, part in self._module.named_modules()
                     if isinstance(part, torch.nn.RNNBase) and part.dropout and part.num_layers > 1]  # fmt: skip
        example = f", for one the dropout between the layers of {recurrent[0]}; set it to 0" if recurrent else ""
        return f"not compared: PyTorch's model draws random numbers in training mode, besides dropout{example}"

    def _singular(self) -> dict[str, str]:
        """Gradients that are infinite or NaN in the port alone, for samples of zeros or of equal values, by variable:
        torch defines the slope of a norm at 0, and JAX does not."""
        texts = dict[str, str]()
        self._module.load_state_dict(self._begin)
        self._set(self._moved(set(self._variables)))
        for values in SINGULAR:
            inputs = self._reference.inputs(Case(0, BATCH, 1.0, extremes=(values,) * BATCH))
            self._torch(inputs)
            _, slopes, _ = self._port(self._signature.in_port(inputs))
            for name, array in moved_gradients(self._prepared, self._gradients()).items():
                if name in slopes and np.isfinite(array).all() and not np.isfinite(np.asarray(slopes[name])).all():
                    text = f"the gradient by {name} is not finite for inputs that are {values}, and PyTorch's is"
                    texts.setdefault(name, text)
        return texts

    def _pair(self, recipe: OptimizerRecipe, gradients: Mapping[str, Array]) -> OptimizerPair:
        """New optimizers of both sides, for the parameters that have gradients."""
        import torch

        from wdport.parity.torch_training import TorchTraining

        trained = {name: parameter for name, parameter in self._trained().items() if name in gradients}
        group_of = {name: int(parameter.ndim < 2) for name, parameter in trained.items()}
        optimizer = getattr(torch.optim, recipe.name)(
            [
                {"params": [p for name, p in trained.items() if group_of[name] == group], "weight_decay": decay}
                for group, decay in enumerate((recipe.decayed, recipe.others))
            ],
            **recipe.options,
        )
        clip = float(np.sqrt(sum(np.sum(gradient**2) for gradient in gradients.values()))) / 2.0
        reference = TorchTraining(self._module, optimizer)
        tables: dict[str, Any] = {}
        if recipe.full:
            warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=2)
            cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
            schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, cosine], milestones=[2])
            reference = TorchTraining(self._module, optimizer, schedule, clip, BATCHES)
            rates, _ = Schedule(schedule.state_dict(), optimizer.param_groups).ahead(STEPS)
            tables = {"rates": rates, "clip_norm": clip, "gradient_accumulation_steps": BATCHES}
        kind: Kind = "sgd" if recipe.name == "SGD" else "adam"
        settings = (*SETTINGS[kind], DECOUPLED)
        groups = [{name: group[name] for name in settings if name in group} for group in optimizer.param_groups]
        paths = {id(variable): path for path, variable in self._variables.items()}
        of_variable = {target: group_of.get(move.sources[0], 0)
                       for move in self._prepared.plan.moves for target in move.targets}  # fmt: skip
        variables = self._model.trainable_variables
        members = [of_variable.get(paths.get(id(variable), ""), 0) for variable in variables]
        port = (SGD if kind == "sgd" else Adam)(groups, members, **tables)
        port.build(variables)
        return OptimizerPair(self._prepared.plan.moves, self._model, port, reference, f", {recipe.name}")

    def _set(self, arrays: Mapping[str, Array]) -> None:
        for path, array in arrays.items():
            set_variable(self._variables[path], array)

    def _add_all(self, errors: Mapping[str, float]) -> None:
        for name, error in errors.items():
            self._add(name, error)

    def _add(self, name: str, error: float) -> None:
        self._errors[name] = max(error, self._errors.get(name, 0.0))

    def _gradients(self) -> dict[str, Array]:
        """PyTorch's gradients by parameter, views of them."""
        gradients = {name: p.grad.numpy() for name, p in self._trained().items() if p.grad is not None}
        self._moving |= gradients.keys()
        return gradients

    def _trained(self) -> dict[str, torch.nn.Parameter]:
        """The parameters that PyTorch trains; one of several names by that with which the table fills a variable."""
        used = {name for move in self._prepared.plan.moves for name in move.sources}
        named = [pair for pair in self._module.named_parameters(remove_duplicate=False) if pair[1].requires_grad]
        names = {id(parameter): name for name, parameter in reversed(named)}
        names |= {id(parameter): name for name, parameter in reversed(named) if name in used}
        return {name: parameter for name, parameter in named if names[id(parameter)] == name}

    def _moved(self, paths: Collection[str], changed: Mapping[str, torch.Tensor] | None = None) -> dict[str, Array]:
        """The reference's parameters and buffers, with those that are ``changed``, as these variables of the port."""
        state, arrays = {**self._module.state_dict(), **(changed or {})}, dict[str, Array]()
        for move in self._prepared.plan.moves:
            if all(name in state for name in move.sources) and not set(move.targets).isdisjoint(paths):
                # Copies: PyTorch updates its statistics in place.
                sources = [np.array(state[name].numpy()) for name in move.sources]
                arrays |= zip(move.targets, move.apply(sources, rounded=False), strict=True)
        return {path: array for path, array in arrays.items() if path in paths}

    def _torch(self, inputs: Sequence[Any]) -> float:
        """Compute PyTorch's loss and gradients, and update its running statistics."""
        import torch

        self._module.zero_grad(set_to_none=True)
        self._draws.in_torch = 0
        self._biased = BiasedVariances(self._module)
        with functions(self._biased.watch):
            output = self._module(*[torch.from_numpy(np.array(array)) for array in inputs])
        self._drawn = self._draws.in_torch  # the backward pass may repeat parts of the network
        loss = torch.zeros((), dtype=torch.float64)
        for array in tensors_of(output):
            if array.is_floating_point():
                # Outputs may have 16 bits, and infinite ones are logits of what is not allowed.
                finite = array.double().masked_fill(array.isinf(), 0.0)
                loss = loss + (finite.sin() + finite.square() / 2).mean()
        if loss.requires_grad:  # a model may have nothing to train
            torch.autograd.backward(loss)
        return float(loss.detach())

    def _port_like(
        self, expected: float, inputs: tuple[Array, ...], first: bool
    ) -> tuple[Array, dict[str, Any], dict[str, Any]]:
        """:meth:`_port`; the ``first`` time, also with masks the other way round, if that is nearer to this loss: one
        side may keep a sample where a uniform number is below a bound, and the other side where it is above one."""
        result = self._port(inputs)
        if not (first and self._draws.in_port) or (error := relative_l2(result[0], np.asarray(expected))) <= GRADIENT:
            return result
        self._reversed = True
        other = self._port(inputs)
        self._reversed = relative_l2(other[0], np.asarray(expected)) < error
        return other if self._reversed else result

    def _port(self, inputs: tuple[Array, ...]) -> tuple[Array, dict[str, Any], dict[str, Any]]:
        """The port's loss, its gradients, and its other variables after the step, by path."""
        paths = {id(variable): path for path, variable in self._variables.items()}
        trained, fixed = self._model.trainable_variables, self._model.non_trainable_variables
        numbers = 1.0 - self._draws.numbers if self._reversed else self._draws.numbers
        loss, slopes, state = self._program(*variable_values(self._model), inputs, numbers)
        by_path = {paths[id(variable)]: slope for variable, slope in zip(trained, slopes, strict=True)}
        after = {
            paths[id(variable)]: value for variable, value in zip(fixed, state, strict=True) if id(variable) in paths
        }
        return np.asarray(loss), by_path, after

    def _port_step(
        self, weights: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Array, ...], numbers: Array
    ) -> Any:  # fmt: skip
        self._draws.use(numbers)

        def loss_of(weights: list[jax.Array]) -> Any:
            output, state, penalties = training_call(self._model, weights, fixed, inputs)
            self._masked = any(get_keras_mask(array) is not None for array in tensors(output))
            arrays = [jnp.where(jnp.isinf(array), 0.0, array.astype(float)) for array in tensors(output)
                      if jnp.issubdtype(array.dtype, jnp.floating)]  # fmt: skip
            # As in fit: regularizers of weights and of outputs are part of the loss.
            return sum(jnp.mean(jnp.sin(array) + array**2 / 2) for array in arrays) + sum(penalties), state

        (loss, state), slopes = jax.value_and_grad(loss_of, has_aux=True)(weights)
        return loss, slopes, state

    def _statistics(self, state: Mapping[str, Any]) -> None:
        """Compare the port's running statistics after a step with the reference's."""
        errors = ScaledErrors()
        after = self._moved(state.keys() & self._variables.keys())
        for path, value in state.items():
            if path in after:
                errors.add(path, np.asarray(value), after[path])
        biased: dict[str, Array] | None = None
        for path, error in errors.relative().items():
            self._add(path, error)
            if error > GRADIENT and self._causes.get(path, True):
                biased = biased if biased is not None else self._moved(after, self._biased.values)
                self._causes[path] = self._bias(path, np.asarray(state[path]), biased[path])

    def _bias(self, path: str, ours: Array, biased: Array) -> Finding | None:
        """A notice if the port's moving variance differs only by the bias of the variance."""
        layer = layers_by_path(self._model).get(path.rpartition("/")[0])
        error = relative_l2(ours, biased)
        if not isinstance(layer, keras.layers.BatchNormalization) or error > GRADIENT:
            return None
        names = next(move.sources for move in self._prepared.plan.moves if path in move.targets)
        counts = " and ".join(map(str, dict.fromkeys(self._biased.counts.get(names[0], ()))))
        self._unbiased[path] = max(error, self._unbiased.get(path, 0.0))
        text = (f"{path} is updated with the biased variance of {counts} values, as Keras's BatchNormalization does; "
                "wdport.nets.norms.UnbiasedBatchNormalization updates it as PyTorch does")  # fmt: skip
        return notice(text, path)

    def _frozen(self) -> Iterator[Finding]:
        """Variables that only one of the two sides trains."""
        trained = set(self._trained())
        for fill in self._prepared.plan.fills:
            if fill.target in self._variables and self._variables[fill.target].trainable:
                what = "trained by the port, and PyTorch has no tensor for it: set trainable = False, or leave it out"
                yield fact(f"{fill.target} is {what}", fill.target, "unequal")
        for move in self._prepared.plan.moves:
            theirs = all(name in trained for name in move.sources)
            for path in move.targets:
                if path not in self._variables or self._variables[path].trainable == theirs:
                    continue
                if theirs and self._moving.isdisjoint(move.sources):  # PyTorch's optimizers leave them as they are
                    continue
                what = (
                    "trained by PyTorch, and not by the port" if theirs else "trained by the port, and not by PyTorch"
                )
                yield fact(f"{path} is {what}", path, "unequal")

    def _shared_masks(self) -> Iterator[Finding]:
        """Masks of whole samples that several layers of one side share."""
        ours, theirs = self._draws.in_port, self._drawn
        equal = all(error <= GRADIENT for error in self._errors.values())
        if ours < theirs and (ours or not equal):
            yield fact(f"the port draws {ours} times for whole samples, as stochastic depth does, and PyTorch {theirs} "
                       "times: draw once for every layer that drops them", kind="unequal")  # fmt: skip
        elif ours > theirs:
            yield notice(f"the port draws {ours} times for whole samples, and PyTorch {theirs} times")

    def _unlike_pytorch(self) -> Iterator[Finding]:
        """What changes training in Keras, whether or not it has in these steps."""
        for path, variable in self._variables.items():
            if variable.trainable and getattr(variable, "constraint", None) is not None:
                yield fact(f"{path} has a constraint, and PyTorch has none", path, "unequal")
        generators: dict[object, tuple[object, str]] = {}
        for path, layer in layers_by_path(self._model).items():
            # Keras's recurrent layers, for example, have generators that they do not use.
            used = getattr(layer, "rate", not type(layer).__module__.startswith("keras."))
            for generator in layer._seed_generators if used else ():
                if (seed := generator.get_config()["seed"]) is None:
                    continue
                first, other = generators.setdefault(seed, (generator, path))
                if first is not generator:
                    yield fact(f"{path} has the seed of {other}, and drops the same values; give them no seed", path,
                               "unequal")  # fmt: skip
        if self._masked:
            yield notice("outputs of the model have a mask, so a loss of `compile` leaves out what is masked")
        changed = [name for name in ("train_step", "compute_loss")
                   if getattr(type(self._model), name) is not getattr(keras.Model, name)]  # fmt: skip
        if changed:
            yield notice(f"not compared: the model's own {' and '.join(changed)}")

    def _still(self) -> Iterator[Finding]:
        """Variables that the port trains, and whose parameters get no gradient in PyTorch."""
        for move in self._prepared.plan.moves:
            if self._moving.isdisjoint(move.sources) and set(move.sources) <= self._trained().keys():
                for path in move.targets:
                    if path in self._variables and self._variables[path].trainable:
                        text = f"{path} gets no gradient, so PyTorch's optimizers leave it as it is"
                        fix = "and a weight decay of Keras's does not: exclude it, or set trainable = False"
                        yield notice(f"{text}, {fix}", path)

    def _uncompared(self) -> list[str]:
        """The trained variables whose gradients were not compared."""
        skipped = {finding.subject for finding in self._frozen()}
        for move in self._prepared.plan.moves:
            if move.combine == "weight_norm":
                skipped |= set(move.targets)
        return [
            path
            for path, variable in self._variables.items()
            if variable.trainable and path not in skipped and f"gradient of {path}" not in self._errors
        ]
