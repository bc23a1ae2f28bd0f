"""What users run, compared with plain loops: a gate for every verb that a family offers besides the network's call."""

from __future__ import annotations
