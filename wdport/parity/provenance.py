"""Whether what a converted file says of itself is true: its variables, its configuration, the manifest beside it."""

from __future__ import annotations

from collections.abc import Mapping

from wdport.compare.findings import Finding, fact, notice
from wdport.conversion.account import torn
from wdport.conversion.load import Converted
from wdport.conversion.prepare import Prepared, source_of
from wdport.errors import MisfitError
from wdport.families.roles import OwnFamily
from wdport.files.manifests import manifest_of
from wdport.files.model_files import digest
from wdport.model import Array, Document

GIVEN = ("config", "flag")
"""Origins of what the user said at the conversion; everything else comes out of the checkpoint again."""


def provenance(
    converted: Converted, variables: Mapping[str, Array], sha256: str, source_sha256: str | None
) -> list[Finding]:
    """What is to be said of a converted file, whose hash is ``sha256``, and of its ``variables`` as they were read.

    ``source_sha256`` is the hash of the checkpoint that it is compared with, if it is there.
    """
    account = converted.account
    if account is None:
        return [notice("saved by Keras: nothing in the converted file says what it was made from")]
    found = []
    for name, array in variables.items():
        if digest(array) != account.digests.get(name):
            found.append(fact(f"{name} is not what was written: another SHA-256", name, "damaged"))
    beside = manifest_of(converted.path)
    if contradiction := torn(converted.path, account, sha256):
        found.append(fact(f"the manifest does not fit: {contradiction}", beside.name, "torn"))
    elif not beside.exists():
        found.append(notice(f"{beside.name} is missing; the file holds the same", beside.name))
    if source_sha256 is not None and source_sha256 != account.source.sha256:
        found.append(notice(f"converted from another file than this one: {account.source.name}, by its SHA-256"))
    return found


def contradictions(prepared: Prepared, converted: Converted, own: OwnFamily | None) -> list[Finding]:
    """Values of the converted file's configuration that do not come out of the checkpoint again, with what the user
    said at the conversion given once more. Of ``own``, a model of the user's, what its functions are called with."""
    if converted.account is None:
        return []
    if own is not None:
        return _other_arguments(prepared, converted, own)
    told = {origin: _from(converted, origin) for origin in GIVEN}
    try:
        again = prepared.family.resolve(source_of(prepared.checkpoint), told["config"], told["flag"])
    except MisfitError as error:
        return [fact(f"its configuration contradicts the checkpoint: {error.what}", kind="contradicted")]
    ours, theirs = converted.config.to_dict(), again.config.to_dict()
    return [
        fact(f"{name} is {ours[name]} in the converted file, {theirs[name]} by the checkpoint", name, "contradicted")
        for name in ours
        if ours[name] != theirs[name]
    ]


def _other_arguments(prepared: Prepared, converted: Converted, own: OwnFamily) -> list[Finding]:
    try:
        theirs = own.arguments(source_of(prepared.checkpoint), {})
    except MisfitError:  # they came from --config, and nothing else tells them
        return []
    ours = converted.config.arguments
    return [
        fact(
            f"{name} is {ours.get(name)} in the converted file, {theirs[name]} by the checkpoint", name, "contradicted"
        )
        for name in theirs
        if ours.get(name) != theirs[name]
    ]


def _from(converted: Converted, origin: str) -> Document:
    """The values of the configuration that came from there."""
    return {name: getattr(converted.config, name) for name, where in converted.origins.items() if where == origin}
