"""Find tables: the folder of the shipped ones, and the files that a table includes."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from wdport.errors import InternalError
from wdport.mapping.fields import Fields


def mappings_folder() -> Path:
    """Return ``mappings/`` inside the installed package, or next to it in a source checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "_mappings", package.parent / "mappings"):
        if any(folder.glob("*.yaml")):
            return folder
    raise InternalError("wdport", "its mapping tables are not installed", "install the package again")


def included_file(entry: str, folder: Path | None, fields: Fields, line: int) -> Path:
    """Return the file of one entry of `include`: a name from ``mappings/``, or a path relative to the table's file.

    Raises :class:`MisfitError` if it does not exist.
    """
    path = PurePosixPath(entry)
    if path.suffix not in (".yaml", ".yml") and len(path.parts) == 1:
        shipped = mappings_folder() / f"{entry}.yaml"
        if not shipped.is_file():
            names = ", ".join(sorted(file.stem for file in mappings_folder().glob("*.yaml")))
            fix = f"use one of {names}, or the path of a .yaml file beside the table"
            raise fields.fault(f"include: no table {entry!r} comes with wdport", fix, line)
        return shipped
    if path.is_absolute() or ".." in path.parts:
        raise fields.fault(f"include: {entry!r} is not beside the table", "use a path below the table's folder", line)
    if folder is None:
        raise fields.fault(
            f"include: {entry!r} is relative to the table's file", "include by name, or save the table", line
        )
    if not (folder / path).is_file():
        raise fields.fault(f"include: no file {entry!r} beside the table", "correct the path", line)
    return folder / path
