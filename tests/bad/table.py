"""The table of bad files: kinds of input by room."""

from __future__ import annotations

from tests.bad.case import Bad
from tests.bad.checkpoints import checkpoints
from tests.bad.converted import converted
from tests.bad.recordings import recordings
from tests.bad.series import series
from tests.bad.texts import texts

TABLE: dict[str, Bad] = {**checkpoints(), **texts(), **series(), **converted(), **recordings()}
