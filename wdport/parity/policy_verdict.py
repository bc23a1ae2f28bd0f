"""A verdict for CI: read the policy and the baseline, try known faults, then judge by both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from wdport.compare.findings import Gate
from wdport.options import PathText
from wdport.parity.policy.baseline import apply_baseline, make_baseline, read_baseline, write_baseline
from wdport.parity.policy.judge import apply_policy
from wdport.parity.policy.policy import Policy, read_policy
from wdport.parity.verdict import Verdict


@dataclass(frozen=True)
class Terms:
    """The policy and the baseline that a run is judged by besides the default bounds; both are optional."""

    policy: Policy | None = None
    baseline: Mapping[str, Any] | None = None

    @property
    def any(self) -> bool:
        return self.policy is not None or self.baseline is not None


def read_terms(policy: PathText | None, baseline: PathText | None, today: date) -> Terms:
    """Read both files; raises ``UsageError`` or ``InputError`` if one of them is wrong."""
    return Terms(read_policy(policy, today) if policy else None, read_baseline(baseline) if baseline else None)


def judge(verdict: Verdict, terms: Terms, today: date, canaries: Gate | None = None) -> Verdict:
    """The verdict under the terms, with the gate of the known faults if they were tried."""
    if canaries is not None:
        verdict = replace(verdict, gates=(*verdict.gates, canaries))
    if terms.policy is not None:
        verdict = apply_policy(verdict, terms.policy, today)
    if terms.baseline is not None:
        verdict = apply_baseline(verdict, terms.baseline)
    return verdict


def update_baseline(path: PathText, verdict: Verdict, force: bool = False) -> None:
    """Write the verdict's errors as the baseline; raises if the verdict does not qualify."""
    write_baseline(path, make_baseline(verdict), force)
