"""Writes what is made from the types of our kinds: `crds/*.yaml` and the field tables in `docs/reference/crds.md`.

`python -m tools.crds` after a change of a kind; a test compares the committed files with `files()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bramley.api import crds
from bramley.api.meta import MAX_INT32

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs/reference/crds.md"

HEAD = """\
# Custom kinds

Every field of the kinds that Bramley adds to Kubernetes.
This page and `crds/` are generated from the types in `src/bramley/api` by `python -m tools.crds`.
"""

BOUNDS = {
    "minimum": "≥ {}",
    "maximum": "≤ {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "maxItems": "at most {} items",
    "pattern": "matches `{}`",
}


def files() -> dict[Path, str]:
    """Return every generated file and its text."""
    manifests = crds.manifests()
    yamls = {
        ROOT / "crds" / f"{manifest['metadata']['name']}.yaml": crds.to_yaml(manifest)
        for manifest in manifests
    }
    return {**yamls, DOCUMENT: "\n".join([HEAD, *(chapter(manifest) for manifest in manifests)])}


def chapter(manifest: dict[str, Any]) -> str:
    """Return the chapter on one kind."""
    spec = manifest["spec"]
    version = spec["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    parts = {
        name: part for name, part in schema["properties"].items() if name in {"spec", "status"}
    }
    lines = [
        f"## {spec['names']['kind']}",
        "",
        schema["description"],
        "",
        *facts(spec, version),
    ]
    for name, part in parts.items():
        lines += ["", f"### {spec['names']['kind']} {name}", "", *table(part, name)]
    return "\n".join([*lines, *rule_list(schema), ""])


def facts(spec: dict[str, Any], version: dict[str, Any]) -> list[str]:
    """Return where the kind lives and what `kubectl` knows of it."""
    subresources = ", ".join(version.get("subresources", {})) or "none"
    columns = ", ".join(
        column["name"] + (" (wide)" if column.get("priority") else "")
        for column in version["additionalPrinterColumns"]
    )
    names = spec["names"]
    words = ", ".join(f"`{name}`" for name in (names["plural"], *names["shortNames"]))
    return [
        f"- API: `{spec['group']}/{version['name']}`, {spec['scope'].lower()}",
        f"- `kubectl get`: {words}; category `{names['categories'][0]}`",
        f"- Columns: {columns}",
        f"- Subresources: {subresources}",
    ]


def table(schema: dict[str, Any], path: str) -> list[str]:
    """Return the table of all fields below a part of the object."""
    head = ["| field | type | default | rules | meaning |", "|---|---|---|---|---|"]
    return head + [row(*entry) for entry in fields(schema, path)]


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield each field with its path, its schema and whether it must be there."""
    for name, field_schema in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        yield here, field_schema, name in schema.get("required", [])
        yield from fields(field_schema, here)
        yield from fields(field_schema.get("items", {}), f"{here}[]")


def row(path: str, schema: dict[str, Any], required: bool) -> str:  # noqa: FBT001 - from a tuple
    """Return one row of a table."""
    default = schema.get("default")
    plain = default is not None and not isinstance(default, dict)
    shown = f"`{str(default).lower() if isinstance(default, bool) else default}`" if plain else ""
    rules = "; ".join([*(["required"] if required else []), *rules_of(schema)])
    return f"| `{path}` | {type_of(schema)} | {shown} | {rules} | {schema.get('description', '')} |"


def type_of(schema: dict[str, Any]) -> str:
    """Return the type as documentation names it."""
    if schema["type"] == "array":
        return f"list of {type_of(schema['items'])}"
    return str(schema.get("format") or schema["type"])


def rules_of(schema: dict[str, Any]) -> list[str]:
    """Return the bounds of a field, or of the items of a list."""
    # The greatest int32 is implied by the type.
    bounds = {key: text for key, text in BOUNDS.items() if schema.get(key, MAX_INT32) != MAX_INT32}
    rules = [text.format(schema[key]) for key, text in bounds.items()]
    if "enum" in schema:
        rules.append("one of " + ", ".join(f"`{value}`" for value in schema["enum"] if value))
    items = schema.get("items")
    return rules + [f"each {rule}" for rule in (rules_of(items) if items else [])]


def rule_list(schema: dict[str, Any]) -> list[str]:
    """Return the rules across fields and across time, each with its expression."""
    rules = [
        f"- `{path}`: {rule['message']} (`{rule['rule']}`)"
        for path, field_schema in [("spec", schema["properties"]["spec"]), *paths(schema)]
        for rule in field_schema.get("x-kubernetes-validations", [])
    ]
    return ["", "Rules:", "", *rules] if rules else []


def paths(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each field of the spec with its path."""
    for path, field_schema, _ in fields(schema["properties"]["spec"], "spec"):
        yield path, field_schema


def main() -> None:
    """Write all generated files."""
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
