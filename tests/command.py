"""The command line in the process of a test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Cli = Callable[..., "pytest.CaptureResult[str]"]
"""The fixture ``cli``: runs a command of these words, fails unless it ends with ``code`` (0), and returns what it
printed."""

Refused = Callable[..., None]
"""The fixture ``refused``: runs a command of these words, fails unless it ends with ``code`` (2) and prints one line on
stderr, which has the words ``says``; on stdout there may be details, each indented."""
