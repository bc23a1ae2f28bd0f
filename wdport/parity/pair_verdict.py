"""The verdict on a pair as the command line and pytest reach it: compared, and judged by a policy and a baseline.

It imports no keras: other processes compare a pair with fresh inputs, and importing keras takes seconds.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from datetime import date

from wdport.base.options import PathText
from wdport.compare.activities import Say
from wdport.parity.fresh.gate import fresh_verdict
from wdport.parity.policy.judge import Terms, judge
from wdport.parity.selftest.known_faults import KnownFaults
from wdport.parity.verdict import Verdict
from wdport.parity.verify_options import Pair


def judged_pair(
    pair: Pair, terms: Terms, today: date, known_faults: KnownFaults | None = None, say: Say | None = None,
    repro: PathText | None = None,
) -> Verdict:  # fmt: skip
    """The verdict on a ``pair`` under ``terms``; the known faults are tried meanwhile, if there are terms."""
    if known_faults is None or not terms.any:
        return judge(verify_pair(pair, say, repro), terms, today)
    started = time.monotonic()
    with known_faults.tried(terms.policy) as gate:
        compared = verify_pair(pair, say, repro)
        verdict = judge(compared, terms, today, gate(say or (lambda _: None)))
    return replace(verdict, seconds=time.monotonic() - started)


def verify_pair(pair: Pair, say: Say | None = None, repro: PathText | None = None) -> Verdict:
    """Return the verdict of :func:`verify`, or of :func:`verify_recording`; raises what they raise."""
    verdict = fresh_verdict(pair, say, repro, pair.optimizer) if pair.fresh else _compared_here(pair, say, repro)
    return replace(verdict, further=_further(pair, verdict))


def _compared_here(pair: Pair, say: Say | None, repro: PathText | None) -> Verdict:
    """The verdict of a comparison in this process."""
    from wdport.parity.verify import compare_files, verify_recording

    if pair.checkpoint is None:
        return verify_recording(pair.converted, str(pair.against), mapping=pair.mapping, model=pair.model,
                                inputs=pair.inputs, repro=repro, say=say)  # fmt: skip
    return compare_files(pair, say, repro, pair.optimizer)


def _further(pair: Pair, verdict: Verdict) -> str:
    """The command that looks further into the faults of a user's own model if none of them is explained."""
    family = pair.own
    explained = any(verdict.causes.get(fault.candidate) for fault in verdict.faults)
    # Where a recording is the reference, PyTorch's model is elsewhere.
    if family is None or not family.reference or not verdict.faults or explained or pair.checkpoint is None:
        return ""
    words = ["wdport", "map", "suggest", "--reference", family.reference, "--keras-model", family.model]
    words += [word for text in family.inputs for word in ("--input", text)]
    words += ["--config", str(pair.config)] if pair.config else []
    return shlex.join([*words, "--checkpoint", str(pair.checkpoint)])
