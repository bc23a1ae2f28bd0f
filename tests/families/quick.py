"""`verify` for statements on what is compared, which need neither samplers nor all inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from wdport.compare.calls import CASES
from wdport.parity import verify
from wdport.parity.run_gates import Setup
from wdport.parity.verdict_api import Verdict
from wdport.parity.verify_request import Pair


@contextmanager
def few_cases(count: int = 1) -> Iterator[None]:
    """Makes `verify` compare the first of its cases only."""
    with patch.object(verify, "battery", lambda *_: CASES[:count]):
        yield


def network_verdict(checkpoint: Path | str, converted: Path | str, **options: Any) -> Verdict:
    """The verdict on the network alone, of one case, without probable causes."""
    with few_cases():
        return verify.compare_files(Pair(converted, checkpoint, **options), setup=Setup(network=True, causes=False))
