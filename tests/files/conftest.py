"""Files that several modules of these tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.files.keras_models import save_models


@pytest.fixture(scope="session")
def saved_models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """``.keras`` and ``.weights.h5`` files that Keras wrote."""
    return save_models(tmp_path_factory.mktemp("keras"))
