"""Check what a converted file states about itself: its variables, its configuration, the manifest next to it."""

from __future__ import annotations

from collections.abc import Mapping

from wdport.compare.findings import Finding, fact, notice
from wdport.conversion.account import contradiction_of
from wdport.conversion.load import Converted
from wdport.conversion.prepare import Prepared, Settings, source_of, user_configuration
from wdport.conversion.rounding import narrow
from wdport.errors import MisfitError, printable
from wdport.families.roles import OwnFamily
from wdport.files.manifests import manifest_of
from wdport.files.model_files import digest
from wdport.model import STATED, Array, Resolved

_HOW = "; if it was said at the conversion, say it to verify too"
_UNCHECKED = "the statistics of windows are as the file states; --data FILE --transform NAME compares them"

LONGEST = 80
"""Characters of a value in a finding."""


def provenance(
    converted: Converted, variables: Mapping[str, Array], sha256: str, source_sha256: str | None
) -> list[Finding]:
    """Findings on a converted file with the hash ``sha256`` and on its ``variables`` as read.

    ``source_sha256`` is the hash of the checkpoint that it is compared with, if there is one.
    """
    account = converted.account
    if account is None:
        return [notice(converted.note)]
    findings = []
    if account.rounded:
        dtypes = ", ".join(sorted({account.dtypes[name] for name in account.rounded}))
        findings.append(notice(f"the weights were rounded to {dtypes}; the reference computes with the rounded ones"))
    for name, array in variables.items():
        if digest(narrow(array, account.dtypes.get(name, "float32"))) != account.digests.get(name):
            findings.append(fact(f"{name} is not what was written: another SHA-256", name, "damaged"))
    beside = manifest_of(converted.path)
    if contradiction := contradiction_of(converted.path, account, sha256):
        findings.append(fact(f"the manifest does not fit: {contradiction}", beside.name, "torn"))
    elif not beside.exists():
        findings.append(notice(f"{beside.name} is missing; the file holds the same", beside.name))
    if source_sha256 is not None and source_sha256 != account.source.sha256:
        findings.append(notice(f"converted from another file than this one: {account.source.name}, by its SHA-256"))
    return findings


def contradictions(
    prepared: Prepared, converted: Converted, user_family: OwnFamily | None, settings: Settings
) -> list[Finding]:
    """Findings on configuration values of the converted file that differ when derived again from the checkpoint and
    the values that the user gave at the conversion, as recorded in the file, or in ``settings``. For ``user_family``,
    a user's model, the configuration is the arguments of its functions."""
    config, flags = user_configuration(prepared.family, settings)
    if user_family is not None:
        return _other_arguments(prepared, converted, user_family, config)
    config = _from(converted, "config") | config
    flags = _from(converted, "flag") | _from(converted, "data") | flags
    try:
        again = prepared.family.resolve(source_of(prepared.checkpoint), config, flags)
    except MisfitError as error:
        return [fact(f"its configuration does not come out again: {error.what}{_HOW}", kind="contradicted")]
    ours, theirs = converted.config.to_dict(), again.config.to_dict()
    stated = [notice(_UNCHECKED)] if settings.units is None and ours.get("window_statistics") else []
    return stated + [
        fact(f"{name} is {_shown(ours.get(name))} in the converted file, {_by(again, name)}", name, "contradicted")
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name)
    ]


def _shown(value: object) -> str:
    """A value, of a long one the beginning."""
    return printable(str(value), LONGEST)


def _by(again: Resolved, name: str) -> str:
    """The value as derived now, and its origin."""
    value, origin = _shown(again.config.to_dict().get(name)), again.origins.get(name, "default")
    if origin in ("assumed", "default"):
        return f"which nothing tells: {value} is {'assumed' if origin == 'assumed' else 'the default'}{_HOW}"
    return f"{value} by the {'checkpoint' if origin not in STATED else origin}"


def _other_arguments(
    prepared: Prepared, converted: Converted, user_family: OwnFamily, config: Mapping[str, object]
) -> list[Finding]:
    try:
        theirs = user_family.arguments(source_of(prepared.checkpoint), config)
    except MisfitError:  # they came from --config, and nothing else states them
        return []
    ours = converted.config.arguments
    return [
        fact(
            f"{name} is {ours.get(name)} in the converted file, {theirs[name]} by the checkpoint", name, "contradicted"
        )
        for name in theirs
        if ours.get(name) != theirs[name]
    ]


def _from(converted: Converted, origin: str) -> dict[str, object]:
    """The configuration values of this origin."""
    return {name: getattr(converted.config, name) for name, where in converted.origins.items() if where == origin}
