"""A finished verdict and a policy in, the verdict under that policy out. No model is run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date

from wdport.compare.bounds import bounds as default_bounds
from wdport.parity.policy.judge import (
    BOUND,
    OUTPUT,
    WAIVED,
    is_logic_finding,
    larger,
    ratio_name,
    ratio_sentence,
    subject,
    tap_findings,
    worst_of,
)
from wdport.parity.policy.policy import BoundSetting, Policy, Waiver
from wdport.parity.verdict import Gate, TapResult, Verdict

NAME = "P"
"""The gate that a policy adds: its bounds, and what is wrong with its entries."""

_BOUND_OF = {"A'": "table_ulp", "C": "gradient", "E": "trajectory", "E'": "numerics"}
"""The gates that hold one largest value against one bound; gate F has two, by its boundary mode."""

_MEASURED = re.compile(r".+ is (?:off by )?[0-9.]+(?:e[+-]?[0-9]+)?(?: ulp from its formula)?")
"""A sentence of those gates on a finite number; any other says something that no bound is about."""


def apply_policy(verdict: Verdict, policy: Policy, today: date) -> Verdict:
    """Judge a verdict again, under a policy's bounds and waivers.

    Gates A and B are judged from the taps, the other gates from their largest value. What was not compared
    stays not compared, and gate 0 is never touched. A gate ``P`` lists every bound that is not the default;
    it fails by an expired entry and by a waiver that is not needed. A policy without entries changes nothing.
    """
    if not policy.bounds and not policy.waivers:
        return verdict
    changed, taps = policy.bounds_on(today), {tap.reference for tap in verdict.taps}
    held = {**default_bounds(), **verdict.bounds, **changed}
    gates: list[Gate] = []
    unneeded: list[Waiver] = []
    for gate in verdict.gates:
        valid = [each for each in policy.waivers
                 if each.gate == gate.name and each.tap in taps and not each.expired(today)]  # fmt: skip
        if gate.name == "A":
            gates.append(_per_tap(gate, verdict, held, valid, unneeded, held["logic"]))
        elif gate.name == "B":
            gates.append(_per_tap(gate, verdict, held, valid, unneeded, held["numerics"]))
        else:
            gates.append(_scalar(gate, changed))
    judged = {gate.name for gate in verdict.gates}
    unneeded += [each for each in policy.waivers
                 if not each.expired(today) and not (each.gate in judged and each.tap in taps)]  # fmt: skip
    gates.append(_policy_gate(policy, today, unneeded, taps))
    return replace(verdict, gates=tuple(gates), bounds=held)


def _per_tap(
    gate: Gate,
    verdict: Verdict,
    held: Mapping[str, float],
    waivers: Sequence[Waiver],
    unneeded: list[Waiver],
    bound: float,
) -> Gate:
    """Gate A or B, from the taps; waivers that nothing failed under are added to ``unneeded``."""
    found = [finding for tap in verdict.taps for finding in tap_findings(tap, gate.name, held)]
    if gate.name == "B":
        found += _output_findings(gate, verdict, bound)
    else:
        found += [finding for finding in gate.findings if not is_logic_finding(finding)]
    waived = {waiver.tap: waiver for waiver in waivers}
    needed = {subject(finding) for finding in found}
    unneeded += [waiver for waiver in waivers if waiver.tap not in needed]
    failing = [finding for finding in found if subject(finding) not in waived]
    if gate.name == "B" and not failing and (doubt := _unrecorded(gate, verdict, bound)):
        failing.append(doubt)
    notices = [f"{WAIVED}{w.tap} until {w.expires}: {w.reason}" for w in waivers if w.tap in needed]
    where, worst = worst_of((name, value) for name, value in _values(gate, verdict) if subject(name) not in waived)
    passed = not failing and gate.compared == gate.expected > 0
    return replace(gate, passed=passed, worst=worst, bound=bound, where=where, findings=(*failing, *notices))


def _values(gate: Gate, verdict: Verdict) -> list[tuple[str, float]]:
    """What gate A or B measured, by name, as far as a verdict holds it."""
    if gate.name == "A":
        return [(tap.reference, larger(tap.isolated, tap.inputs, tap.cumulative)) for tap in verdict.taps]
    values = [(tap.reference, larger(tap.rms_ratio, tap.max_ratio)) for tap in verdict.taps]
    values += [(f"{tap.reference} inputs", tap.inputs_ratio) for tap in verdict.taps]
    values += [(f"{OUTPUT} {level.name}", level.ratio) for level in verdict.levels]
    other = gate.worst is not None and not _from_taps(gate.where, verdict.taps) and not _level(gate.where, verdict)
    return [*values, (gate.where, gate.worst)] if other and gate.worst is not None else values


def _from_taps(name: str, taps: Sequence[TapResult]) -> bool:
    return any(name in (tap.reference, f"{tap.reference} inputs") for tap in taps)


def _level(name: str, verdict: Verdict) -> str:
    """The wavelet level that a name of gate B belongs to, if any."""
    return next((each.name for each in verdict.levels if f"{name} ".startswith(f"{OUTPUT} {each.name} ")), "")


def _output_findings(gate: Gate, verdict: Verdict, bound: float) -> list[str]:
    """What gate B has against the output's levels and against the network as a whole.

    A level's features are known by their largest ratio, the network's only where it is the gate's largest
    value: a finding on it goes if that value is within the bound, and stays otherwise.
    """
    off = [level for level in verdict.levels if not level.ratio <= bound]
    worst = larger(gate.worst if gate.worst is not None else float("inf"))
    kept = []
    for finding in gate.findings:
        name = ratio_name(finding)
        if _from_taps(name, verdict.taps):
            continue
        level = _level(name, verdict)
        beyond = any(each.name == level for each in off) if level else not worst <= bound
        if not name or beyond:
            kept.append(finding)
    told = {_level(ratio_name(finding), verdict) for finding in kept}
    kept += [ratio_sentence(f"{OUTPUT} {each.name}", each.ratio) for each in off if each.name not in told]
    whole = gate.where and not _from_taps(gate.where, verdict.taps) and not _level(gate.where, verdict)
    if whole and not worst <= bound and not any(ratio_name(finding) == gate.where for finding in kept):
        kept.append(ratio_sentence(gate.where, worst))
    return kept


def _unrecorded(gate: Gate, verdict: Verdict, bound: float) -> str:
    """A fault where a tightened bound cannot be held against the whole network's ratio; "" where it can.

    The verdict has that ratio only as the gate's largest value. Beside a larger one, which must be waived
    for this to matter, it is known to be within the bound that the run was judged by, and no more.
    """
    judged = gate.bound if gate.bound is not None else default_bounds()["numerics"]
    whole = not _from_taps(gate.where, verdict.taps) and not _level(gate.where, verdict)
    if bound >= judged or whole or larger(gate.worst or 0.0) <= bound:
        return ""
    return f"{OUTPUT}, whole network is known to be within {judged:g} only: {bound:g} cannot be judged beside a waiver"


def _scalar(gate: Gate, changed: Mapping[str, float]) -> Gate:
    """A gate with one largest value, under the policy's bound for it, if it has one."""
    name = _BOUND_OF.get(gate.name, "")
    if gate.name == "F":
        name = "wavelet" if gate.bound == default_bounds()["wavelet"] else "wavelet_extrapolated"
    if name not in changed or gate.worst is None:
        return gate
    bound, kept = changed[name], gate.findings
    if gate.passed and gate.worst <= bound:
        return replace(gate, bound=bound)
    if gate.worst <= bound:
        kept = tuple(finding for finding in kept if not _MEASURED.fullmatch(finding))
    elif not kept:
        kept = (f"{gate.where or gate.title} is off by {gate.worst:.1e}, the policy's bound is {bound:.1e}",)
    passed = not kept and gate.compared == gate.expected > 0
    return replace(gate, passed=passed, bound=bound, findings=kept)


def _policy_gate(policy: Policy, today: date, unneeded: Sequence[Waiver], taps: set[str]) -> Gate:
    """The policy's own gate: faults of its entries first, then every bound that is not the default."""
    faults = [
        f"{each.name} expired on {each.expires}: renew it with its reason, or remove it from {policy.source}"
        for each in policy.bounds
        if each.expired(today)
    ]
    faults += [
        f"waiver of {each.tap} for gate {each.gate} expired on {each.expires}: mend the layer, or renew the waiver"
        for each in policy.waivers
        if each.expired(today)
    ]
    for each in unneeded:
        why = f"passes gate {each.gate}" if each.tap in taps else "is no layer that was compared"
        faults.append(f"waiver not needed: {each.tap} {why}; remove it from {policy.source}")
    ordered = sorted(policy.bounds, key=lambda setting: not setting.looser)
    notices = [_bound_notice(each) for each in ordered if each.in_force(today) != each.default]
    count = len(policy.bounds) + len(policy.waivers)
    return Gate(NAME, "policy", not faults, count, count, findings=(*faults, *notices))


def _bound_notice(setting: BoundSetting) -> str:
    until = f" until {setting.expires}" if setting.expires else ""
    how = "loosened" if setting.looser else "tightened"
    reason = f": {setting.reason}" if setting.reason else ""
    return f"{BOUND}{setting.name} {how} to {setting.value:g} (default {setting.default:g}){until}{reason}"
