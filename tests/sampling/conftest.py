"""A converted model for the tests of sampling."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.make import convert_tiny


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that knows the units of its data."""
    return convert_tiny(tmp_path_factory.mktemp("sampling"))
