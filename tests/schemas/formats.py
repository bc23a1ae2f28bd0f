"""The formats: name, declaring type, and constraints that the type cannot express."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

from tests.schemas.json_schema import Schema, schema_of
from wdport.base.shared_types import given
from wdport.cli.results import ConversionDocument, InspectionDocument, RecordingDocument
from wdport.compare.findings import GATES
from wdport.conversion.manifest_schema import Manifest
from wdport.conversion.table_documents import CheckDocument, ExplanationDocument
from wdport.families.registry import known_bounds, shipped
from wdport.families.roles import Configured
from wdport.files.json_document import SCHEMAS, FaultsDocument
from wdport.mapping.axes import RULES, Combine
from wdport.mapping.diff import DifferenceDocument
from wdport.mapping.kinds import KINDS
from wdport.mapping.kinds.activations import ROW_NAMES
from wdport.mapping.kinds.kind import Kind
from wdport.mapping.schema import Axes, Rows, TableForm
from wdport.parity.policy.policy import WAIVABLE, BaselineForm, PolicyForm
from wdport.parity.proving.port_document import PortDocument
from wdport.parity.proving.suggest import SuggestionDocument
from wdport.parity.recording_file import RecordingForm
from wdport.parity.selftest.result import SelftestDocument
from wdport.parity.verdict import VerdictDocument
from wdport.porting.outline.result import OutlineDocument
from wdport.uses.cli.results import CodedDocument, ExportDocument, GeneratedDocument, SamplesDocument, TrainingDocument
from wdport.uses.custom_sampled import DiffusionForm, FlowForm, NoiseLevelsForm
from wdport.uses.data.statistics import StatisticsForm
from wdport.uses.evaluation.document import EvaluationDocument
from wdport.uses.exporting.artifact import ExportFacts, VerificationDocument

_ARROW: Schema = {"pattern": get_args(Axes)[1].pattern, "examples": get_args(Axes)[1].examples}
_ROWS = tuple(Rows.__annotations__)
_ABSENT: Any = False
"""The schema that no value satisfies: a property with it must be absent."""


def _with(name: str, then: Schema) -> Schema:
    """Require ``then`` if the field ``name`` is given."""
    return {"if": given(name), "then": then}


def _one(name: str, *others: str) -> Schema:
    """Require the field ``name`` and none of the others."""
    return {**given(name), "properties": {name: True, **dict.fromkeys(others, _ABSENT)}}


def _kind(kind: Kind) -> Schema:
    """The fields that a row of this kind may have."""
    names: Schema = {"type": "object", "propertyNames": {"enum": list(kind.names)}} if kind.names else _ABSENT
    return {
        "if": given("kind", {"const": kind.name}),
        "then": {"properties": {"names": names, "formerly": names, **({} if kind.flattens else {"flatten": _ABSENT})}},
    }


_LAYER: Schema = {
    "properties": {
        "kind": {"enum": list(KINDS)},
        "then": {"enum": list(ROW_NAMES)},
        "flatten": {"not": {"pattern": r"\[|\.\.\."}},
        "axes": {"not": {"pattern": r"\["}},
    },
    "dependentRequired": {"names": ["kind"], "formerly": ["kind"], "flatten": ["kind"]},
    "allOf": [_kind(kind) for kind in KINDS.values()],
}

_TENSOR: Schema = {
    "properties": {
        "rule": {"anyOf": [{"enum": list(RULES)}, dict(_ARROW)]},
        "combine": {"enum": [name for name in get_args(Combine) if name]},
    },
    "dependentRequired": {"keras": ["rule"], "rule": ["keras"]},
    "allOf": [
        {
            "oneOf": [
                _one("keras", "drop"),
                _one("check", "keras", "drop"),
                _one("drop", "keras", "check"),
            ]
        },
        _with("combine", {"properties": {"torch": {"type": "array", "minItems": 2}}}),
        {
            "if": given("combine", {"const": "weight_norm"}),
            "then": {"properties": {"torch": {"type": "array", "maxItems": 2}}},
        },
        *(_with(name, {"properties": {"torch": {"anyOf": [{"type": "string"}, {"type": "array", "maxItems": 1}]}}})
          for name in ("check", "drop")),
    ]
}  # fmt: skip

_WITHOUT_WHEN: Schema = {"type": "object", "properties": {"when": _ABSENT}}

_SECTION: Schema = {
    "anyOf": [given(name) for name in _ROWS],
    **_with("when", {"properties": {name: {"type": "array", "items": _WITHOUT_WHEN} for name in _ROWS}}),
}

CONDITIONS: Mapping[str, Schema] = {
    "LayerRow": _LAYER,
    "TensorRow": _TENSOR,
    "SectionForm": _SECTION,
    "TableForm": {
        "anyOf": [*(given(name) for name in (*_ROWS, "sections")), given("include", {"type": "array", "minItems": 1})]
    },
}
"""Conditions by dictionary of :mod:`wdport.mapping.schema`."""


DOCUMENTS: Final[Mapping[str, tuple[str, object]]] = {
    "verdict": ("Verdict of wdport verify", VerdictDocument),
    "inspection": ("Document of wdport inspect", InspectionDocument),
    "conversion": ("Document of wdport convert", ConversionDocument),
    "recording": ("Document of wdport record", RecordingDocument),
    "samples": ("Document of wdport sample", SamplesDocument),
    "evaluation": ("Document of wdport evaluate", EvaluationDocument),
    "training": ("Document of wdport train", TrainingDocument),
    "coded": ("Document of wdport encode and decode", CodedDocument),
    "generated": ("Document of wdport generate", GeneratedDocument),
    "export": ("Document of wdport export", ExportDocument),
    "verification": ("Document of wdport verify for an exported file", VerificationDocument),
    "suggestion": ("Document of wdport map suggest", SuggestionDocument),
    "port": ("Document of wdport port", PortDocument),
    "outline": ("Document of wdport map outline", OutlineDocument),
    "check": ("Document of wdport map check", CheckDocument),
    "explanation": ("Document of wdport map explain", ExplanationDocument),
    "difference": ("Document of wdport map diff", DifferenceDocument),
    "faults": ("Document of a command that ends with several faults", FaultsDocument),
    "selftest": ("Document of wdport selftest", SelftestDocument),
}
"""Documents of ``--json`` by their kind."""

PUBLISHED: Final = {"mapping-table", "policy", "baseline", "manifest", "verdict", "suggestion", "samples"}
"""The formats that other programs read or write."""

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Published:
    """A format with its schema.

    Attributes:
        name: stem of ``NAME.schema.json`` and, if it has its own page, of ``NAME.md``.
        title: its title.
        declared: its type; ``object`` if ``family_schema`` is the schema.
        conditions: see :func:`tests.schemas.json_schema.schema_of`.
        closed: whether a field that is not in the schema is an error. Formats that people write are closed; those that
            wdport writes are open, since a later version may add fields.
        examples: example documents.
        family_schema: the whole schema, if a model family defines it.
        published: whether the schema is published, for programs that read or write the format; the schemas of all
            formats hold what the tests write.
        page: whether the format has a page with tables of its fields.
    """

    name: str
    title: str
    declared: object = object
    conditions: Mapping[str, Schema] = field(default_factory=dict)
    closed: bool = False
    examples: Sequence[object] = ()
    family_schema: Mapping[str, object] = field(default_factory=dict)
    published: bool = False
    page: bool = False

    def schema(self, site: str, closed: bool | None = None) -> Schema:
        """The schema, whose ``$id`` is below ``site``; ``closed`` in place of the format's own."""
        inside: Schema = dict(self.family_schema)
        if not inside:
            inside = schema_of(self.declared, self.conditions, self.closed if closed is None else closed)
        if self.name in SCHEMAS:
            inside = _headed(self.name, inside)
        head = {"$schema": DIALECT, "$id": f"{site}schemas/{self.name}.schema.json", "title": self.title}
        return {**head, **inside, **({"examples": list(self.examples)} if self.examples else {})}


def _headed(kind: str, schema: Schema) -> Schema:
    """The schema of a result with the two fields that every document of ``--json`` begins with."""
    head = {
        "schema": {"description": "Version number of the format.", "const": SCHEMAS[kind]},
        "kind": {"description": "Kind of the document.", "const": kind},
    }
    properties, required = {**head, **schema["properties"]}, dict.fromkeys([*head, *schema["required"]])
    return {**schema, "properties": properties, "required": list(required)}


def formats() -> tuple[Published, ...]:
    """Every format, beginning with those that people write."""
    families = [family for family in shipped() if isinstance(family, Configured)]
    every = (
        Published("mapping-table", "Mapping table of wdport", TableForm, _table(), True, _TABLES),
        *(Published(f"configuration-{family.name}", f"Configuration of {family.name}",
                    family_schema=family.settings_schema()) for family in families),
        Published("policy", "Policy of wdport verify (parity.toml)", PolicyForm, _policy(), True, _POLICIES),
        Published("baseline", "Baseline of wdport verify (parity-baseline.json)", BaselineForm, {}, True, _BASELINES),
        Published("statistics", "Statistics of a series (--norm-stats)", StatisticsForm, {}, False, _STATISTICS),
        Published("manifest", "Manifest of a conversion (NAME.wdport.json)", Manifest),
        Published("recording-index", "Index of a recording (index.npy)", RecordingForm),
        Published("export-facts", "Facts about an exported file (facts.json)", ExportFacts),
        *(Published(kind, f"{title} (--json)", declared) for kind, (title, declared) in DOCUMENTS.items()),
    )  # fmt: skip
    written = {"statistics", *(f"configuration-{family.name}" for family in families)}
    return tuple(replace(each, published=each.name in PUBLISHED, page=each.name in PUBLISHED | written)
                 for each in every)  # fmt: skip


def _table() -> Mapping[str, Schema]:
    """Conditions of a mapping table, with the fields of ``sampling:``, which a model family reads."""
    sampling = {"anyOf": [_inlined(schema_of(form, {}, True)) for form in (FlowForm, DiffusionForm, NoiseLevelsForm)]}
    return {**CONDITIONS, "TableForm": {**CONDITIONS["TableForm"], "properties": {"sampling": sampling}}}


def _inlined(schema: Schema) -> Schema:
    """A schema with the definitions that its properties refer to in their places: it becomes part of another one."""
    parts: Any = schema.pop("$defs", {})
    properties: Any = schema["properties"]
    for property_schema in properties.values():
        if (name := str(property_schema.get("$ref", "")).removeprefix("#/$defs/")) in parts:
            del property_schema["$ref"]
            property_schema.update({**parts[name], **property_schema})
    return schema


def _policy() -> Mapping[str, Schema]:
    """Conditions of a policy, with every bound by name, and the fields that a looser one needs."""
    bounds = {
        name: {
            "description": f"Default {bound.value:g}. {bound.described[0].upper()}{bound.described[1:]}.",
            "$ref": "#/$defs/BoundForm",
            "if": given("value", {"type": "number", "exclusiveMinimum": bound.value}),
            "then": {"allOf": [given("reason"), given("expires")]},
        }
        for name, bound in known_bounds().items()
    }
    held = {"additionalProperties": False, "properties": bounds}
    return {
        "PolicyForm": {"properties": {"bounds": held}},
        "WaiverForm": {"properties": {"gate": {"enum": [*(GATES[letter].name for letter in WAIVABLE), *WAIVABLE]}}},
    }


_TABLES: Final = (
    {
        "format": 2,
        "torch": "my.net:build",
        "keras": "my.twins:build",
        "inputs": ["x: b 3 48 48"],
        "layers": [{"torch": "conv<n>", "keras": "conv<n>", "kind": "conv2d", "then": "relu"}],
    },
)
_POLICIES: Final = (
    {
        "bounds": {
            "logic": {"value": 1e-12},
            "numerics": {"value": 12.0, "reason": "the GPU sums in another order", "expires": "2027-01-31"},
        },
        "settings": {"differs": "fail"},
        "waivers": [{"tap": "blocks.0.norm1", "gate": WAIVABLE[-1], "reason": "to be mended", "expires": "2027-01-31"}],
    },
)
_BASELINES: Final = (
    {"schema": 1, "taps": {"blocks.0.norm1": {"isolated": 2e-15, "cumulative": 3e-15, "rms_ratio": 1.0}}},
)
_STATISTICS: Final = (
    {"mean": [17.1, 0.3], "std": [9.2, 1.4]},
    {"mean": [17.1, 0.3], "std": [9.2, 1.4], "names": ["temperature (°C)", "rain (mm)"]},
)
