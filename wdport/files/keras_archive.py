"""Read the JSON members of an open ``.keras`` file and locate its weights; each is checked by its CRC."""

from __future__ import annotations

from typing import Final

from wdport.checkpoint.faults import COPY_AGAIN, SAVE_WITH_KERAS, Fault
from wdport.checkpoint.source import Source, Span
from wdport.checkpoint.strict_json import require_shallow, strict_json
from wdport.checkpoint.ziparchive import read_flat_members
from wdport.files.manifests import MANIFEST
from wdport.limits import MAX_CONFIG_BYTES, MAX_KEPT_BYTES, MAX_MANIFEST_BYTES

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.weights.h5"
METADATA: Final = "metadata.json"
ASSETS: Final = "assets/"
_CAPS: Final = {CONFIG: MAX_CONFIG_BYTES, METADATA: MAX_CONFIG_BYTES, MANIFEST: MAX_MANIFEST_BYTES}


class KerasArchive:
    """The members of an archive, read on demand."""

    def __init__(self, source: Source) -> None:
        self._members = read_flat_members(source)
        for name in (CONFIG, WEIGHTS):
            if name not in self._members:
                raise Fault(f"has no {name}: it is not a whole .keras file", SAVE_WITH_KERAS)
        for name in self._members:
            if name not in (*_CAPS, WEIGHTS) and not name.startswith(ASSETS):
                raise Fault("neither Keras nor wdport writes this member", SAVE_WITH_KERAS, name)

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a JSON member or an asset; None if the archive does not have it."""
        if name not in self._members:
            return None
        span, cap = self._members[name], _CAPS.get(name, MAX_KEPT_BYTES)
        if span.nbytes > cap:
            raise Fault(f"the {name} of {span.nbytes} bytes is too long (at most {cap})", SAVE_WITH_KERAS)
        check_crc(span)
        return span.read()

    def config_json(self) -> bytes:
        """Return Keras's description of the model, checked to be safe to parse."""
        raw = self.read(CONFIG) or b""
        require_shallow(strict_json(raw, CONFIG), CONFIG)
        return raw

    def weights(self) -> Span:
        """Return the HDF5 file in the archive; its CRC is not checked yet, see :func:`check_crc`."""
        return self._members[WEIGHTS]


def check_crc(span: Span) -> None:
    """Read a member once and compare it with its CRC."""
    if span.crc is None or span.verified:
        return
    if span.source.crc(span.start, span.nbytes) != span.crc:
        raise Fault("the bytes of the zip member do not match their CRC", COPY_AGAIN, span.name)
    span.verified = True
