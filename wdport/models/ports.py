"""Modules whose import makes Keras know a model class of ours; a list of names, nothing is imported."""

from __future__ import annotations

from typing import Final

PORTS: Final = ("wdport.models.waveletdiff.port",)
