"""The command line in the process of a test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Cli = Callable[..., "pytest.CaptureResult[str]"]
"""The fixture ``cli``: runs a command of these words, fails unless it ends with ``code`` (0), and returns what it
printed."""
