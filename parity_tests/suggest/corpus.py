"""The pairs: two functions that build the models, what they take and give, and the table that is the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from wdport.families.user_functions import find_function
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.table import Table, load_table

from .names import How, honest_names

HERE = Path(__file__).parent
LAST = "b c h w -> b h w c"


@dataclass(frozen=True)
class Pair:
    """A PyTorch module and its Keras twin.

    Attributes:
        name: unique; the network in ``nets``, the module in ``twins`` and the table in ``truths`` have it.
        about: what is hard about it.
        outputs: layouts of the outputs, PyTorch's to Keras's, in order (those of a dictionary by name); a missing or
            empty one stays.
        golden: the checkpoint that configuration comes from, for a model that wdport itself has; its truth is the
            shipped table.
    """

    name: str
    about: str
    outputs: tuple[str, ...] = ()
    golden: str = ""

    def reference(self, names: How) -> str:
        """What ``--reference`` is given."""
        if names != "honest":
            return f"parity_tests.suggest.renamed:{self.name}_{names}"
        stem = f".goldens:{self.name}_torch" if self.golden else f":{self.name}"
        return f"parity_tests.suggest.nets{stem}"

    @property
    def model(self) -> str:
        """What ``--keras-model`` is given."""
        stem = f"nets.goldens:{self.name}_keras" if self.golden else f"twins.{self.name}:build"
        return f"parity_tests.suggest.{stem}"

    @property
    def twin(self) -> Path:
        """The source of the Keras model."""
        return HERE / "twins" / f"{self.name}.py"

    @property
    def truth(self) -> Path:
        """The table by hand; of a golden there is none."""
        return HERE / "truths" / f"{self.name}.yaml"

    def table(self) -> Table:
        """The truth."""
        if self.golden:
            from .nets.goldens import table

            return table(self.golden)
        return load_table(self.truth)

    @property
    def inputs(self) -> tuple[str, ...]:
        """What ``--input`` is given."""
        if self.golden:
            from .nets.goldens import inputs

            return inputs(self.golden)
        return self.table().inputs

    def build_torch(self, names: How = "honest") -> torch.nn.Module:
        """The module, in evaluation mode."""
        module = find_function(self.reference(names))()
        assert isinstance(module, torch.nn.Module)
        return module.eval()

    def honest(self, names: How) -> dict[str, str]:
        """The honest name of every tensor and module, by the name that it has under ``names``."""
        return honest_names(find_function(self.reference("honest")), names)  # type: ignore[arg-type]

    def plan(self, targets: Mapping[str, tuple[int, ...]]) -> Plan:
        """What becomes of every tensor, in truth; raises ``ValueError`` where the table does not fit."""
        shapes = {name: tuple(tensor.shape) for name, tensor in self.build_torch().state_dict().items()}
        constants: Mapping[str, tuple[int, ...]] = {}
        features: frozenset[str] = frozenset()
        if self.golden:
            from .nets.goldens import known

            constants, features = known(self.golden)
        found = make_plan(self.table(), shapes, targets, constants, features)
        if not isinstance(found, Plan):
            raise ValueError(f"{self.name}: {found}")
        return found


def _pairs() -> tuple[Pair, ...]:
    return (
        Pair("onet", "flatten of (w h c), pooling that rounds up, three outputs"),
        Pair("crepe", "(k, 1) as one axis, ReLU before the norm, names of Keras's"),
        Pair("resemblyzer", "three LSTM layers in one module, two parameters that are not used"),
        Pair("attacut", "two embeddings of one shape, dilation, Sequential models inside"),
        Pair("silero", "reflect padding, LSTM cell, window one as Dense, a stacked state"),
        Pair("resnet", "names of Keras's in another order, shortcuts, strides"),
        Pair("mobilenet", "depthwise, Dense for windows of one, blocks in a list"),
        Pair("unet", "skip connections, nested models, transposed convolution", (LAST,)),
        Pair("encdec", "packed attention, masks, positions, a tied head, a mask as buffer"),
        Pair("square", "every weight d x d, layers in one list, last first"),
        Pair("vit", "class token, positions, layer scales, a scalar; packed against query, key, value"),
        Pair("twice", "modules called two and three times, (c h w) flatten"),
        Pair("vocoder", "weight norm of both forms, transposed and dilated convolutions", ("b c l -> b l c",)),
        Pair("whole", "integers that are no tokens, a buffer that Keras computes"),
        Pair("vae", "a dictionary of outputs, two heads of one shape, (c h w) out of a linear layer",
             (LAST, "", "")),
        Pair("tagger", "two bidirectional LSTM layers, Sequential, names of Keras's"),
        Pair("speech", "GRU, bidirectional GRU, simple RNN, GRU cell, time first"),
        Pair("norms", "group, root mean square and flattened batch norms, groups, an unused head"),
        Pair("pointwise", "Linear as convolution and back; as many tokens as channels"),
        Pair("subtract", "two branches of one shape, subtracted"),
        Pair("add", "two branches of one shape, added"),
        Pair("first", "channels first in Keras, (c h w) of 4 x 4 x 4, one slope"),
        Pair("fused", "one matrix here, several there: qkv, scale and shift, two gates"),
        Pair("tower", "two inputs, nested outputs, kdim and vdim, Bilinear"),
        Pair("stack", "PyTorch's own encoder, which has a fast path; square, names of Keras's"),
        Pair("gpt", "layers of the user's own on both sides, weights stored in x out, a tied head, causal buffers"),
        Pair("style", "instance norms, reflection, pixel shuffle, a style in two layers", (LAST,)),
        Pair("etth1", "WaveletDiff, official architecture, noise target", golden="etth1-seq24-db2.ckpt"),
        Pair("stocks", "WaveletDiff, 8 heads, cosine schedule", golden="stocks-seq64-db4.pt"),
        Pair("exchange", "WaveletDiff, QK norm", golden="exchange-seq24-qknorm.ckpt"),
        Pair("ts2vec", "TS2Vec, dilated convolutions", golden="ts2vec-stocks.pt"),
    )  # fmt: skip


PAIRS: Mapping[str, Pair] = {pair.name: pair for pair in _pairs()}
"""Every pair by name."""
