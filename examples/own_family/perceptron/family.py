"""The object that the entry point names: what wdport has to know about the family."""

from __future__ import annotations

from perceptron.config import Config
from wdport.families.ported import PortedFamily
from wdport.models.interface import Port, Signature
from wdport.recording.input_text import parse_input


class PerceptronFamily(PortedFamily[Config]):
    """Perceptrons whose sizes are determined by the shapes of their weights."""

    name = "perceptron"
    package = "perceptron"
    configuration = Config
    keras_class = "Perceptron"

    def sizes(self, shapes):
        hidden, inputs = shapes.get("fc1.weight", (None, None))
        return {"inputs": inputs, "hidden": hidden, "outputs": shapes.get("fc2.bias", (None,))[0]}

    def signature(self, config):
        return Signature((parse_input(f"x: b {config.inputs}"),), (Port("y"),))


FAMILY = PerceptronFamily()
