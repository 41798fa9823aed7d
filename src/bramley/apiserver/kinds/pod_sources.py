"""Where containers get variables and files from: references to fields, ConfigMaps and Secrets, and the paths of files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.registry.resources import Json
from bramley.base.errors import Cause

_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_KNOWN_FIELDS = frozenset(
    {*_FIELDS, "metadata.annotations", "metadata.labels", "spec.restartPolicy"}
    | {"spec.schedulerName", "status.phase", "spec.host"}
)
_AMOUNTS = tuple(
    sorted(
        f"{side}.{name}"
        for side in ("limits", "requests")
        for name in ("cpu", "memory", "ephemeral-storage")
    )
)
_SUBSCRIPT = re.compile(r"(metadata\.(?:annotations|labels))\['(.*)'\]")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
_NO_NAME = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_NO_SOURCE = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
)
_SEVERAL = "may not have more than one field specified at a time"


def check_variables(variables: list[Json], field: str) -> Iterator[Cause]:
    """Yield what is wrong with the variables of a container."""
    for index, variable in enumerate(variables):
        at = f"{field}[{index}]"
        if not variable.get("name"):
            yield causes.required(f"{at}.name")
        yield from _wrong_name(variable.get("name", ""), f"{at}.name")
        if "valueFrom" in variable:
            yield from _wrong_source(variable, f"{at}.valueFrom")


def check_imports(sources: list[Json], field: str) -> Iterator[Cause]:
    """Yield what is wrong with the ConfigMaps and Secrets that become variables as a whole."""
    for index, source in enumerate(sources):
        at = f"{field}[{index}]"
        yield from _wrong_name(source.get("prefix", ""), f"{at}.prefix")
        given = [name for name in ("configMapRef", "secretRef") if name in source]
        for name in given:
            yield from _wrong_import(source[name].get("name", ""), f"{at}.{name}.name")
        if not given:
            yield causes.invalid(field, "", "must specify one of: `configMapRef` or `secretRef`")
        if len(given) > 1:
            yield causes.invalid(field, "", _SEVERAL)


def check_relative(path: str, field: str) -> Iterator[Cause]:
    """Yield what keeps a path from staying below where it begins."""
    if path.startswith("/"):
        yield causes.invalid(field, path, "must be a relative path")
    if ".." in path.split("/"):
        yield causes.invalid(field, path, "must not contain '..'")


def check_files(items: list[Json], field: str) -> Iterator[Cause]:
    """Yield what is wrong with keys that become files."""
    for index, item in enumerate(items):
        at = f"{field}[{index}]"
        for name in ("key", "path"):
            if not item.get(name):
                yield causes.required(f"{at}.{name}")
        if item.get("path"):
            yield from check_file(item["path"], f"{at}.path")
        yield from check_mode(item, "mode", at)


def check_file(path: str, field: str) -> Iterator[Cause]:
    """Yield what keeps a path from naming a file within a volume."""
    wrong = [*check_relative(path, field)]
    yield from wrong
    if path.startswith("..") and not path.startswith("../") and path != ".." and not wrong:
        yield causes.invalid(field, path, "must not start with '..'")


def check_mode(holder: Json, name: str, field: str) -> Iterator[Cause]:
    """Yield a breach when the bits of a file's mode are none."""
    if not 0 <= holder.get(name, 0) <= 0o777:
        detail = "must be a number between 0 and 0777 (octal), both inclusive"
        yield causes.invalid(f"{field}.{name}", holder[name], detail)


def check_field(reference: Json, field: str, allowed: tuple[str, ...] = _FIELDS) -> Iterator[Cause]:
    """Yield what is wrong with a reference to a field of the Pod itself."""
    path = reference.get("fieldPath", "")
    subscript = _SUBSCRIPT.fullmatch(path)
    if not path:
        yield causes.required(f"{field}.fieldPath")
    elif subscript:
        key = subscript[2].lower() if "annotations" in subscript[1] else subscript[2]
        yield from (causes.invalid(field, key, each) for each in names.qualified_name(key))
    elif path not in _KNOWN_FIELDS:
        detail = f"error converting fieldPath: field label not supported: {path}"
        yield causes.invalid(f"{field}.fieldPath", path, detail)
    elif path.replace("spec.host", "spec.nodeName") not in allowed:
        yield causes.unsupported(f"{field}.fieldPath", path, allowed)


def check_amount(reference: Json, field: str) -> Iterator[Cause]:
    """Yield what is wrong with a reference to an amount that a container asks for."""
    amount = reference.get("resource", "")
    if not amount:
        yield causes.required(f"{field}.resource")
    elif amount not in _AMOUNTS and ".hugepages-" not in amount:
        yield causes.unsupported(f"{field}.resource", amount, _AMOUNTS)


def _wrong_name(name: str, field: str) -> Iterator[Cause]:
    if not all(" " <= each <= "~" and each != "=" for each in name):
        yield causes.invalid(field, name, _NO_NAME)


def _wrong_import(name: str, field: str) -> Iterator[Cause]:
    if not name:
        yield causes.required(field)
    for wrong in names.subdomain(name, True) if name else ():
        yield causes.invalid(field, name, wrong)


def _wrong_source(variable: Json, field: str) -> Iterator[Cause]:
    source = variable["valueFrom"]
    given = [name for name in _SOURCES if name in source]
    if "fieldRef" in source:
        yield from check_field(source["fieldRef"], f"{field}.fieldRef")
    if "resourceFieldRef" in source:
        yield from check_amount(source["resourceFieldRef"], f"{field}.resourceFieldRef")
    for name in _SOURCES[2:]:
        if name in source:
            yield from _wrong_key(source[name], f"{field}.{name}")
    if not given:
        yield causes.invalid(field, "", _NO_SOURCE)
    elif variable.get("value"):
        yield causes.invalid(field, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield causes.invalid(field, "", _SEVERAL)


def _wrong_key(reference: Json, field: str) -> Iterator[Cause]:
    name, key = reference.get("name", ""), reference.get("key", "")
    for wrong in names.subdomain(name):
        yield causes.invalid(f"{field}.name", name, wrong)
    if not key:
        yield causes.required(f"{field}.key")
    for wrong in names.config_key(key) if key else ():
        yield causes.invalid(f"{field}.key", key, wrong)
