"""The roles of a model family, each a protocol that the rest of wdport uses.

Every family is a :class:`Family`. The other roles are optional and tested by ``isinstance``: a family that has the
methods has the role.
"""

from wdport.families.roles.family import (
    Accompanied,
    Configured,
    ConfiguredBeside,
    Convertible,
    Documented,
    Family,
    Guessing,
    KeptByKeras,
    Outlined,
    OwnFamily,
    Referenced,
)
from wdport.families.roles.tasks import (
    Autoencoder,
    Completing,
    Denoiser,
    Encoding,
    Fresh,
    Programmed,
    Sampled,
    SeriesEncoder,
    TokenNetwork,
    Trained,
    Tree,
    VideoCoder,
)

__all__ = [
    "Accompanied",
    "Autoencoder",
    "Completing",
    "Configured",
    "ConfiguredBeside",
    "Convertible",
    "Denoiser",
    "Documented",
    "Encoding",
    "Family",
    "Fresh",
    "Guessing",
    "KeptByKeras",
    "Outlined",
    "OwnFamily",
    "Programmed",
    "Referenced",
    "Sampled",
    "SeriesEncoder",
    "TokenNetwork",
    "Trained",
    "Tree",
    "VideoCoder",
]
