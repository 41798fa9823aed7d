"""Validation of a CustomResourceDefinition's spec: names, versions, columns, subresources, schemas, defaults.

The types are checked and the defaults are set before. The messages are those of apiextensions v1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.schema import keywords, structural_validation
from bramley.apiserver.schema.cel_rules import compile_rules
from bramley.apiserver.schema.field_paths import BadPath, find
from bramley.apiserver.schema.pruning import compile_pruner
from bramley.apiserver.schema.value_validation import compile_validation
from bramley.apiserver.schema.values import ABSENT, NO_FIELD, child, copied, same
from bramley.base.errors import Cause

Json = Mapping[str, Any]

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_SELECTABLE = ("string", "boolean", "integer")
_MAX_SELECTABLE = 8
# With a status subresource only these keywords are allowed at the root, since the status is cut out of the schema.
_ALLOWED_AT_ROOT = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern"
    " MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields"
    " XValidations"
)
_ALLOWED_KEYS = frozenset(
    {f"{name[0].lower()}{name[1:]}" for name in _ALLOWED_AT_ROOT.split() if name[0] != "X"}
    | {"x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"}
)
_ALLOWED_AT_ROOT_DETAIL = f"only [{_ALLOWED_AT_ROOT}] fields are allowed at the root of the schema if the status subresource is enabled"
Check = Callable[[Json, str], Iterator[Cause]]


def spec_causes(spec: Json) -> list[Cause]:
    """Return all violations in the spec."""
    return [*_group(spec), *_scope(spec), *_versions(spec), *_names(spec), *_others(spec)]


def _group(spec: Json) -> Iterator[Cause]:
    group = spec["group"]
    problems = names.subdomain(group)
    if not group:
        yield causes.required("spec.group")
    elif problems:
        yield causes.invalid("spec.group", group, ",".join(problems))
    elif "." not in group:
        yield causes.invalid("spec.group", group, "should be a domain with at least one dot")


def _scope(spec: Json) -> Iterator[Cause]:
    scope = spec["scope"]
    if not scope:
        yield causes.required("spec.scope")
    elif scope not in {"Cluster", "Namespaced"}:
        yield causes.unsupported("spec.scope", scope, ("Cluster", "Namespaced"))


def _versions(spec: Json) -> Iterator[Cause]:
    versions = spec["versions"]
    for index, version in enumerate(versions):
        yield from _version(version, f"spec.versions[{index}]")
    for key, shared_key, check in _PARTS:
        yield from _check_part(versions, key, shared_key, check)
    names = [version["name"] for version in versions]
    if len(set(names)) < len(names):
        yield causes.invalid("spec.versions", versions, "must contain unique version names")
    if sum(version["storage"] for version in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        yield causes.invalid("spec.versions", versions, detail)


def _version(version: Json, path: str) -> Iterator[Cause]:
    problems = names.dns1035_label(version["name"])
    if schema_of(version) is None:
        yield causes.required(f"{path}.schema.openAPIV3Schema")
    if problems:
        yield causes.invalid(f"{path}.name", version["name"], ",".join(problems))
    yield from _deprecation(version, path)


def _check_part(
    versions: Sequence[Json], key: str, shared_key: str, check: Check
) -> Iterator[Cause]:
    """Check one part of all versions; Kubernetes reports it once at the top if all versions have the same."""
    values = [version.get(key) for version in versions]
    shared = bool(values) and all(one is not None and same(one, values[0]) for one in values)
    for index, version in enumerate(versions[:1] if shared else versions):
        where = f"spec.{shared_key}" if shared else f"spec.versions[{index}].{key}"
        if version.get(key):
            yield from check(version, where)


def _schema_part(version: Json, path: str) -> Iterator[Cause]:
    schema = schema_of(version)
    if schema is not None:
        has_status = "status" in (version.get("subresources") or {})
        yield from _schema(schema, f"{path}.openAPIV3Schema", has_status=has_status)


def schema_of(version: Json) -> dict[str, Any] | None:
    """Return the schema of a version, if it has one."""
    schema: dict[str, Any] | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema


def _deprecation(version: Json, path: str) -> Iterator[Cause]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    field = f"{path}.deprecationWarning"
    if not version.get("deprecated"):
        yield causes.invalid(field, warning, "can only be set for deprecated versions")
    if not warning:
        yield causes.invalid(field, warning, "must not be an empty string")
    if len(warning) > 256:
        yield causes.invalid(field, warning, "must be <= 256 characters long")


def _schema(schema: Json, path: str, *, has_status: bool) -> Iterator[Cause]:
    if has_status and any(key not in _ALLOWED_KEYS for key in schema if schema[key]):
        yield causes.invalid(path, schema, _ALLOWED_AT_ROOT_DETAIL)
    if schema.get("nullable"):
        yield causes.forbidden(f"{path}.nullable", "nullable cannot be true at the root")
    structural = structural_validation.structural_causes(schema, path)
    yield from structural or _defaults(schema, path, root=True)
    yield from keywords.keyword_causes(schema, path)


def _defaults(schema: Json, path: str, *, root: bool = False) -> Iterator[Cause]:
    """Check that defaults are valid for their own schema."""
    default = schema.get("default")
    if default is not None:
        yield from _default(schema, default, f"{path}.default", root=root)
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _defaults(items, f"{path}.items")
    for name, inner in (schema.get("properties") or {}).items():
        yield from _defaults(inner, f"{path}.properties[{name}]")


def _default(schema: Json, default: Any, path: str, *, root: bool) -> Iterator[Cause]:
    pruned = copied(default)
    compile_pruner(schema, root=root)(pruned, "", [])
    if not same(pruned, default):
        yield causes.invalid(path, default, "must not have unknown fields")
    errors: list[Cause] = []
    compile_validation(schema)(default, ABSENT, "", errors)
    if not errors and not keywords.keyword_causes(schema, path):
        rules = compile_rules(schema)
        if rules is not None:
            rules(default, ABSENT, "", errors)
    for cause in errors:
        where = "" if cause.field == NO_FIELD else cause.field
        yield Cause(f"{path}.{where}" if where else path, cause.reason, cause.message)


def _selectable_part(version: Json, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, entry in enumerate(version["selectableFields"]):
        field, json_path = f"{path}[{index}].jsonPath", entry["jsonPath"]
        yield from _selectable(json_path, schema_of(version) or {}, field)
        if json_path in seen:
            yield causes.duplicate(field, json_path)
        seen.add(json_path)
    if len(seen) > _MAX_SELECTABLE:
        yield causes.too_many(path, count=len(seen), limit=_MAX_SELECTABLE)


def _selectable(json_path: str, schema: Json, field: str) -> Iterator[Cause]:
    if not json_path:
        yield causes.required(field)
        return
    try:
        written, schema_at_path = find(json_path, schema, brackets=False)
    except BadPath as error:
        yield causes.invalid(field, json_path, f"is an invalid path: {error}")
        return
    if written.split(".")[0] == "metadata":
        yield causes.invalid(field, json_path, "must not point to fields in metadata")
    if schema_at_path.get("type") not in _SELECTABLE:
        detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
        yield causes.invalid(field, json_path, detail)


def _subresources_part(version: Json, path: str) -> Iterator[Cause]:
    scale = version["subresources"].get("scale")
    if scale is None:
        return
    for key, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        yield from _scale_path(scale.get(key), f"{path}.scale.{key}", root)
    selector = scale.get("labelSelectorPath")
    if selector and not selector.startswith((".spec.", ".status.")):
        detail = "should be a json path under either .spec or .status"
        if not selector.startswith("."):
            detail = "must be a simple json path starting with ."
        yield causes.invalid(f"{path}.scale.labelSelectorPath", selector, detail)


def _scale_path(value: str | None, field: str, root: str) -> Iterator[Cause]:
    if not value:
        yield causes.required(field)
    elif not value.startswith("."):
        yield causes.invalid(field, value, "must be a simple json path starting with .")
    elif not value.startswith(root):
        yield causes.invalid(field, value, f"should be a json path under {root.rstrip('.')}")


def _columns_part(version: Json, path: str) -> Iterator[Cause]:
    for index, column in enumerate(version["additionalPrinterColumns"]):
        yield from _column(column, f"{path}[{index}]")


def _column(column: Json, path: str) -> Iterator[Cause]:
    types = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not column["name"]:
        yield causes.required(f"{path}.name")
    if not column["type"]:
        yield causes.required(f"{path}.type", types)
    elif column["type"] not in _COLUMN_TYPES:
        yield causes.invalid(f"{path}.type", column["type"], types)
    form = column.get("format")
    if form and form not in _COLUMN_FORMATS:
        yield causes.invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not column["jsonPath"]:
        yield causes.required(f"{path}.JSONPath")
    elif not column["jsonPath"].startswith("."):
        detail = "must be a simple json path starting with ."
        yield causes.invalid(f"{path}.JSONPath", column["jsonPath"], detail)


def _names(spec: Json) -> Iterator[Cause]:
    crd_names = spec["names"]
    for key in ("plural", "singular", "kind", "listKind"):
        if not crd_names.get(key):
            yield causes.required(f"spec.names.{key}")
    for key in ("plural", "singular"):
        yield from _name(crd_names.get(key) or "", f"spec.names.{key}")
    for key in ("kind", "listKind"):
        yield from _name(crd_names.get(key) or "", f"spec.names.{key}", mixed_case=True)
    for index, short in enumerate(crd_names.get("shortNames") or ()):
        yield from _name(short, f"spec.names.shortNames[{index}]", required=True)
    if crd_names["kind"] and crd_names["kind"] == crd_names.get("listKind"):
        detail = "kind and listKind may not be the same"
        yield causes.invalid("spec.names.listKind", crd_names["listKind"], detail)
    for index, category in enumerate(crd_names.get("categories") or ()):
        yield from _name(category, f"spec.names.categories[{index}]", required=True)


def _name(
    value: str, field: str, *, required: bool = False, mixed_case: bool = False
) -> Iterator[Cause]:
    text = value.lower() if mixed_case else value
    problems = ",".join(names.dns1035_label(text)) if value or required else ""
    if problems and mixed_case:
        problems = f"may have mixed case, but should otherwise match: {problems}"
    if problems:
        yield causes.invalid(field, value, problems)


def _others(spec: Json) -> Iterator[Cause]:
    strategy = (spec.get("conversion") or {}).get("strategy") or ""
    field = child("spec", "conversion.strategy")
    if strategy == "Webhook":
        # Kubernetes accepts it, but this server never calls webhooks, so it is rejected.
        yield causes.invalid(
            field, strategy, "conversion webhooks are not served by this API server"
        )
    elif strategy != "None":
        supported = ("None", "Webhook")
        yield causes.unsupported(field, strategy, supported) if strategy else causes.required(field)
    if spec.get("preserveUnknownFields"):
        detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield causes.invalid("spec.preserveUnknownFields", value=True, detail=detail)


# The key of a version, the key at the top of the spec that Kubernetes names for all versions, and the check.
_PARTS: tuple[tuple[str, str, Check], ...] = (
    ("schema", "validation", _schema_part),
    ("subresources", "subresources", _subresources_part),
    ("additionalPrinterColumns", "additionalPrinterColumns", _columns_part),
    ("selectableFields", "selectableFields", _selectable_part),
)
