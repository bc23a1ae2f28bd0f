"""Judge a finished verdict under a policy, without running a model; and for CI: read the policy and the baseline, try
known faults, then judge by both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from wdport.base.options import PathText
from wdport.compare.findings import GATES, Finding, Gate, by_subject, fact, label, notice
from wdport.compare.gate_bounds import bounds
from wdport.parity.policy.baseline import apply_baseline, make_baseline, read_baseline, write_baseline
from wdport.parity.policy.policy import BoundSetting, Policy, Waiver, read_policy
from wdport.parity.verdict import NOT_FRESH, UNTRIED, Verdict

NAME = "P"
"""The gate that a policy adds: its bounds, and findings on its entries."""


def apply_policy(verdict: Verdict, policy: Policy, today: date) -> Verdict:
    """Judge a verdict again under a policy's bounds and waivers.

    Every number is compared with the policy's bound in place of the default. Missing comparisons and facts are not
    affected. The gate policy (P) lists every bound that is not the default; it fails if an entry has expired or a
    waiver is not needed and, if the policy requires equal hyper-parameters, if one differs. A policy without entries
    changes nothing.
    """
    if policy.empty:
        return verdict
    held = {**bounds(), **verdict.bounds, **policy.bounds_on(today)}
    taps = {tap.reference for tap in verdict.taps}
    valid = [waiver for waiver in policy.waivers if waiver.tap in taps and not waiver.expired(today)]
    # From the stored numbers: the models need not run again for other bounds.
    judged = {gate.name: under(gate, held) for gate in verdict.gates}
    failing = {name: by_subject(finding for finding in gate.findings if not finding.notice)
               for name, gate in judged.items()}  # fmt: skip
    # A waiver that is not needed would hide the next fault of its layer, so it fails the policy.
    needed = [waiver for waiver in valid if waiver.tap in failing.get(waiver.gate, ())]
    gates = [_waived(gate, [waiver for waiver in needed if waiver.gate == gate.name]) for gate in judged.values()]
    unneeded = [waiver for waiver in policy.waivers if not waiver.expired(today) and waiver not in needed]
    unmet = _settings(verdict) if policy.settings else []
    return replace(verdict, gates=(*gates, _policy_gate(policy, today, unneeded, taps, unmet)), bounds=held)


def under(gate: Gate, held: Mapping[str, float]) -> Gate:
    """The gate with its numbers compared with these bounds."""
    return replace(gate, measures=tuple(measure.under(held) for measure in gate.measures))


def _waived(gate: Gate, waivers: Sequence[Waiver]) -> Gate:
    """The gate with the findings on waived taps replaced by one notice for each tap."""
    names = {waiver.tap for waiver in waivers}
    if not names:
        return gate
    notices = [Finding(waiver.tap, "waived", detail=f"until {waiver.expires}: {waiver.reason}") for waiver in waivers]
    measures = tuple(measure for measure in gate.measures if measure.subject not in names)
    return replace(gate, measures=measures, facts=(*(f for f in gate.facts if f.subject not in names), *notices))


def _settings(verdict: Verdict) -> list[Finding]:
    """Findings on hyper-parameters that differ, or the reason why none was compared."""
    if verdict.settings.note:
        return [fact(f"settings were not compared: {verdict.settings.note}")]
    differing = verdict.settings.of("differs")
    return [fact(f"{setting.reference}: {setting.text}", setting.reference, "setting") for setting in differing]


def _policy_gate(
    policy: Policy, today: date, unneeded: Sequence[Waiver], taps: set[str], unmet: Sequence[Finding] = ()
) -> Gate:
    """The policy's own gate: faults of its entries first, then settings that differ, then every bound that is not the
    default."""
    fix = f"renew it with its reason, or remove it from {policy.source}"
    expired = [setting for setting in policy.bounds if setting.expired(today)]
    faults = [fact(f"{setting.name} expired on {setting.expires}: {fix}") for setting in expired]
    faults += [
        fact(
            f"waiver of {waiver.tap} for {label(waiver.gate)} expired on {waiver.expires}: "
            "correct the layer, or renew the waiver",
            waiver.tap,
        )
        for waiver in policy.waivers
        if waiver.expired(today)
    ]
    for waiver in unneeded:
        why = f"passes {label(waiver.gate)}" if waiver.tap in taps else "is not a compared layer"
        faults.append(fact(f"waiver not needed: {waiver.tap} {why}; remove it from {policy.source}", waiver.tap))
    ordered = sorted(policy.bounds, key=lambda setting: not setting.looser)
    notices = [_bound_notice(setting) for setting in ordered if setting.in_force(today) != setting.default]
    count = len(policy.bounds) + len(policy.waivers) + policy.settings
    return GATES[NAME].gate(count, count, facts=(*faults, *unmet, *notices))


def _bound_notice(setting: BoundSetting) -> Finding:
    until = f" until {setting.expires}" if setting.expires else ""
    change = "loosened" if setting.looser else "tightened"
    reason = f": {setting.reason}" if setting.reason else ""
    detail = f"{change} to {setting.value:g} (default {setting.default:g}){until}{reason}"
    return Finding(setting.name, "bound", setting.value, setting.default, detail=detail)


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
    """The verdict under the terms, with the gate of the known faults if they were tried, and notices on what was not
    done."""
    skipped = [UNTRIED] if terms.any and canaries is None else []
    compared = {gate.name for gate in verdict.gates}
    if terms.policy is not None and verdict.reference_kind != "recording" and "N" not in compared:
        skipped.append(NOT_FRESH)
    if skipped:
        first, *others = verdict.gates
        first = replace(first, facts=(*first.facts, *map(notice, skipped)))
        verdict = replace(verdict, gates=(first, *others))
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
