"""Extract the fields of the built-in kinds from the Go types of Kubernetes: numbers, types, and patch strategies.

`python -m tools.go_fields FOLDER` reads `FOLDER/api@VERSION` and its neighbours (a Go module cache's `k8s.io`) and rewrites
the packaged data file. The struct tags and the markers above a field contain all that the wire format, strategic merge patches
and server-side apply need to know.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

OUT = Path(__file__).parent.parent / "src/bramley/apiserver/fields/fields.json"
VERSION = "v0.34.4"
PACKAGES = {
    "meta/v1": f"apimachinery@{VERSION}/pkg/apis/meta/v1",
    "apiextensions/v1": f"apiextensions-apiserver@{VERSION}/pkg/apis/apiextensions/v1",
    "apiregistration/v1": f"kube-aggregator@{VERSION}/pkg/apis/apiregistration/v1",
}
IMPORTED = {
    "k8s.io/apimachinery/pkg/apis/meta/v1": "meta/v1",
    "k8s.io/apimachinery/pkg/api/resource": "resource",
    "k8s.io/apimachinery/pkg/util/intstr": "intstr",
    "k8s.io/apimachinery/pkg/runtime": "runtime",
    "k8s.io/apimachinery/pkg/types": "types",
}
LEAVES = {
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intorstring",
    "runtime.RawExtension": "raw",
    "meta/v1.Time": "time",
    "meta/v1.MicroTime": "microtime",
    "meta/v1.Duration": "duration",
    "meta/v1.FieldsV1": "fields",
    "apiextensions/v1.JSON": "json",
    "apiextensions/v1.JSONSchemaPropsOrArray": "props-or-array",
    "apiextensions/v1.JSONSchemaPropsOrBool": "props-or-bool",
    "apiextensions/v1.JSONSchemaPropsOrStringArray": "props-or-strings",
}
SCALARS = {
    "string": "string",
    "bool": "bool",
    "int": "int64",
    "int32": "int32",
    "int64": "int64",
    "uint8": "int32",
    "float64": "float64",
    "[]byte": "bytes",
}
TAGS = {"p": "patchStrategy", "k": "patchMergeKey"}
MARKERS = {
    "l": "listType",
    "m": "mapType",
    "s": "structType",
    "i": "listMapKey",
    "d": "default",
}
# Written as messages of their own although they are lists in Go.
BOXED = frozenset({"ExtraValue", "Verbs"})
SKIPPED = re.compile(r"zz_generated|generated\.pb|_test\.go|swagger|register|doc\.go|conversion")
FIELD = re.compile(r"^\t(?:(\w+) +)?([\w.*\[\]]+) +`([^`]*)`")
TAG = re.compile(r'(\w+):"([^"]*)"')
MARKER = re.compile(r"^\s*// *\+(\w+)=(\S+)")
IMPORT = re.compile(r'^(?:\t|import )(?:(\w+) )?"(k8s\.io/[^"]+)"', re.MULTILINE)


@dataclass
class Type:
    """One type declaration: the fields of a struct, or what another name stands for."""

    package: str
    imports: dict[str, str]
    markers: dict[str, str]
    alias: str = ""
    fields: list[tuple[str, str, dict[str, str], dict[str, list[str]]]] = field(
        default_factory=list
    )


def package_name(path: str) -> str:
    """Return the short name of an imported package, such as `core/v1`."""
    return IMPORTED.get(path, path.removeprefix("k8s.io/api/"))


def read(source: str, package: str) -> dict[str, Type]:
    """Return the types that one Go file declares."""
    imports = {
        alias or path.rsplit("/", 1)[-1]: package_name(path)
        for alias, path in IMPORT.findall(source)
    }
    types: dict[str, Type] = {}
    current: Type | None = None
    markers: dict[str, list[str]] = {}
    for line in source.splitlines():
        if marker := MARKER.match(line):
            markers.setdefault(marker[1], []).append(marker[2])
        elif declared := re.match(r"^type (\w+) (.+)$", line):
            flat = {key: values[0] for key, values in markers.items()}
            current = Type(package, imports, flat)
            types[f"{package}.{declared[1]}"] = current
            if not declared[2].startswith("struct"):
                current.alias = declared[2].split("//")[0].strip().removeprefix("= ")
                current = None
            markers = {}
        elif line.startswith("}"):
            current, markers = None, {}
        elif current is not None and (match := FIELD.match(line)):
            name, kind, tags = match[1] or "", match[2], dict(TAG.findall(match[3]))
            current.fields.append((name, kind, tags, markers))
            markers = {}
    return types


class Cut:
    """The types that were reached, written in the form of the data file."""

    def __init__(self, types: dict[str, Type]) -> None:
        self._types = types
        self.written: dict[str, dict[str, str]] = {}

    def struct(self, name: str) -> None:
        """Write a struct and all that it reaches."""
        if name in self.written:
            return
        declared = self._types[name]
        fields = self.written[name] = {}
        if any(kind.endswith("TypeMeta") for _, kind, _, _ in declared.fields):
            fields["@"] = "kind"
        if declared.markers.get("structType") == "atomic" or (
            declared.markers.get("mapType") == "atomic"
        ):
            fields["!"] = "atomic"
        for go_name, kind, tags, markers in declared.fields:
            self._field(fields, declared, (go_name, kind), tags, markers)

    def _field(
        self,
        fields: dict[str, str],
        declared: Type,
        named: tuple[str, str],
        tags: dict[str, str],
        markers: dict[str, list[str]],
    ) -> None:
        go_name, kind = named
        name, *options = tags.get("json", "").split(",")
        if kind.endswith("TypeMeta") or name == "-":
            return
        number = tags.get("protobuf", ",0").split(",")[1]
        if "inline" in options or not name:
            name = f"~{go_name or kind}"
        marks = ["o"] if {"omitempty", "omitzero"} & set(options) else []
        marks += [f"{letter}={tags[tag]}" for letter, tag in TAGS.items() if tags.get(tag)]
        marks += [
            f"{letter}={','.join(markers[marker])}"
            for letter, marker in MARKERS.items()
            if marker in markers
        ]
        fields[name] = " ".join([number, self._type(kind, declared), *marks])

    def _type(self, text: str, declared: Type) -> str:
        if text in SCALARS:
            return SCALARS[text]
        if text.startswith("*"):
            inner = self._type(text[1:], declared)
            return f"*{inner}"
        if text.startswith("[]"):
            return f"[]{self._type(text[2:], declared)}"
        if text.startswith("map["):
            return "{}" + self._type(text.split("]", 1)[1], declared)
        qualifier, _, name = text.rpartition(".")
        package = declared.imports[qualifier] if qualifier else declared.package
        return self._named(f"{package}.{name}")

    def _named(self, name: str) -> str:
        if name in LEAVES:
            return LEAVES[name]
        if name.startswith("types."):
            return "string"
        declared = self._types[name]
        if not declared.alias:
            self.struct(name)
            return name
        inner = self._type(declared.alias, declared)
        return f"<{inner}" if name.rsplit(".", 1)[-1] in BOXED else inner


def is_kind(declared: Type) -> bool:
    """Return whether a struct is a kind, but not a list of one."""
    has_type = any(kind.endswith("TypeMeta") for _, kind, _, _ in declared.fields)
    is_list = any(kind.endswith("ListMeta") for _, kind, _, _ in declared.fields)
    return has_type and not is_list


def main() -> None:
    """Write the data file."""
    root = Path(sys.argv[1])
    packages = dict(PACKAGES)
    for folder in sorted((root / f"api@{VERSION}").glob("*/v[0-9]")):
        packages[f"{folder.parent.name}/{folder.name}"] = str(folder.relative_to(root))
    types: dict[str, Type] = {}
    for package, folder_name in packages.items():
        for path in sorted((root / folder_name).glob("*.go")):
            if not SKIPPED.search(path.name):
                types |= read(path.read_text(), package)
    cut = Cut(types)
    for name, declared in sorted(types.items()):
        if is_kind(declared) or name in {"meta/v1.DeleteOptions", "meta/v1.Status"}:
            cut.struct(name)
    lines = [
        f"{json.dumps(name)}:{json.dumps(of, separators=(',', ':'))}"
        for name, of in sorted(cut.written.items())
    ]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
