"""Volumes of Pods and the sources of files and environment variables: fields, ConfigMaps, Secrets and projections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

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
_RESOURCE_FIELDS = tuple(
    sorted(
        f"{side}.{name}"
        for side in ("limits", "requests")
        for name in ("cpu", "memory", "ephemeral-storage")
    )
)
_SUBSCRIPT = re.compile(r"(metadata\.(?:annotations|labels))\['(.*)'\]")
_VALUE_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
_NO_NAME = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_NO_SOURCE = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
)
_SEVERAL = "may not have more than one field specified at a time"
_Check = Callable[[Json, str], Iterable[Cause]]
_FILE_FIELDS = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
_HOST_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_TOKEN_SECONDS = (600, 1 << 32)


def check_env(variables: list[Json], field: str) -> Iterator[Cause]:
    """Yield what is wrong with the environment variables of a container."""
    for index, variable in enumerate(variables):
        at = f"{field}[{index}]"
        yield from causes.missing(variable, ("name",), at)
        yield from _validate_name(variable.get("name", ""), f"{at}.name")
        if "valueFrom" in variable:
            yield from _validate_value_source(variable, f"{at}.valueFrom")


def check_env_from(sources: list[Json], field: str) -> Iterator[Cause]:
    """Yield what is wrong with the `envFrom` sources of a container."""
    for index, source in enumerate(sources):
        at = f"{field}[{index}]"
        yield from _validate_name(source.get("prefix", ""), f"{at}.prefix")
        references = [name for name in ("configMapRef", "secretRef") if name in source]
        for each in references:
            yield from causes.missing(source[each], ("name",), f"{at}.{each}")
            if name := source[each].get("name"):
                wrong = names.subdomain(name, True)
                yield from causes.invalid_each(f"{at}.{each}.name", name, wrong)
        if not references:
            yield causes.invalid(field, "", "must specify one of: `configMapRef` or `secretRef`")
        if len(references) > 1:
            yield causes.invalid(field, "", _SEVERAL)


def check_relative(path: str, field: str) -> Iterator[Cause]:
    """Yield a cause when a path is absolute or contains `..`."""
    if path.startswith("/"):
        yield causes.invalid(field, path, "must be a relative path")
    if ".." in path.split("/"):
        yield causes.invalid(field, path, "must not contain '..'")


def check_files(items: list[Json], field: str) -> Iterator[Cause]:
    """Yield what is wrong with keys that are mounted as files."""
    for index, item in enumerate(items):
        at = f"{field}[{index}]"
        yield from causes.missing(item, ("key", "path"), at)
        if item.get("path"):
            yield from check_file(item["path"], f"{at}.path")
        yield from check_mode(item, "mode", at)


def check_file(path: str, field: str) -> Iterator[Cause]:
    """Yield a cause when a path does not name a file within a volume."""
    wrong = [*check_relative(path, field)]
    yield from wrong
    if path.startswith("..") and not path.startswith("../") and path != ".." and not wrong:
        yield causes.invalid(field, path, "must not start with '..'")


def check_mode(holder: Json, name: str, field: str) -> Iterator[Cause]:
    """Yield a cause when a file mode is not valid."""
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
        yield from causes.invalid_each(field, key, names.qualified_name(key))
    elif path not in _KNOWN_FIELDS:
        detail = f"error converting fieldPath: field label not supported: {path}"
        yield causes.invalid(f"{field}.fieldPath", path, detail)
    elif path.replace("spec.host", "spec.nodeName") not in allowed:
        yield causes.unsupported(f"{field}.fieldPath", path, allowed)


def check_resource_field(reference: Json, field: str) -> Iterator[Cause]:
    """Yield what is wrong with a reference to a resource of a container."""
    amount = reference.get("resource", "")
    if not amount:
        yield causes.required(f"{field}.resource")
    elif amount not in _RESOURCE_FIELDS and ".hugepages-" not in amount:
        yield causes.unsupported(f"{field}.resource", amount, _RESOURCE_FIELDS)


def _validate_name(name: str, field: str) -> Iterator[Cause]:
    if not all(" " <= each <= "~" and each != "=" for each in name):
        yield causes.invalid(field, name, _NO_NAME)


def _validate_value_source(variable: Json, field: str) -> Iterator[Cause]:
    source = variable["valueFrom"]
    sources = [name for name in _VALUE_SOURCES if name in source]
    if "fieldRef" in source:
        yield from check_field(source["fieldRef"], f"{field}.fieldRef")
    if "resourceFieldRef" in source:
        yield from check_resource_field(source["resourceFieldRef"], f"{field}.resourceFieldRef")
    for name in _VALUE_SOURCES[2:]:
        if name in source:
            yield from _validate_key(source[name], f"{field}.{name}")
    if not sources:
        yield causes.invalid(field, "", _NO_SOURCE)
    elif variable.get("value"):
        yield causes.invalid(field, "", "may not be specified when `value` is not empty")
    elif len(sources) > 1:
        yield causes.invalid(field, "", _SEVERAL)


def _validate_key(reference: Json, field: str) -> Iterator[Cause]:
    name, key = reference.get("name", ""), reference.get("key", "")
    yield from causes.invalid_each(f"{field}.name", name, names.subdomain(name))
    yield from causes.missing(reference, ("key",), field)
    if key:
        yield from causes.invalid_each(f"{field}.key", key, names.config_key(key))


def check(volumes: list[Json], field: str) -> Iterator[Cause]:
    """Yield what is wrong with the volumes of a Pod."""
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        at, name = f"{field}[{index}]", volume.get("name", "")
        yield from _validate_source(volume, at)
        yield from causes.missing(volume, ("name",), at)
        if name:
            yield from causes.invalid_each(f"{at}.name", name, names.label(name))
        if name and name in seen:
            yield causes.duplicate(f"{at}.name", name)
        seen.add(name)


def check_without_account(volumes: list[Json], field: str) -> Iterator[Cause]:
    """Yield a cause for each token volume of a Pod without a ServiceAccount."""
    for index, volume in enumerate(volumes):
        for number, each in enumerate(volume.get("projected", {}).get("sources", [])):
            if "serviceAccountToken" in each:
                at = f"{field}[{index}].projected.sources[{number}].serviceAccountToken"
                detail = "must not be specified when serviceAccountName is not set"
                yield causes.forbidden(at, detail)


def _validate_source(volume: Json, field: str) -> Iterator[Cause]:
    names = [name for name in volume if name != "name"]
    ordered = sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    for name in ordered[:1]:
        if name in _SOURCES:
            yield from _SOURCES[name](volume[name], f"{field}.{name}")
    for name in ordered[1:]:
        yield causes.forbidden(f"{field}.{name}", "may not specify more than 1 volume type")


def _empty(source: Json, field: str) -> Iterator[Cause]:
    if str(source.get("sizeLimit", "")).startswith("-"):
        detail = "SizeLimit field must be a valid resource quantity"
        yield causes.forbidden(f"{field}.sizeLimit", detail)


def _host_path(source: Json, field: str) -> Iterator[Cause]:
    path = source.get("path", "")
    if not path:
        yield causes.required(f"{field}.path")
        return
    if ".." in path.split("/"):
        yield causes.invalid(f"{field}.path", path, "must not contain '..'")
    yield from causes.not_one_of(f"{field}.type", source.get("type", ""), _HOST_TYPES)


def _keyed(name: str, source: Json, field: str) -> Iterator[Cause]:
    """Check a Secret or a ConfigMap; `name` is the field with its name."""
    yield from causes.missing(source, (name,), field)
    yield from check_mode(source, "defaultMode", field)
    yield from check_files(source.get("items", []), f"{field}.items")


def _nfs(source: Json, field: str) -> Iterator[Cause]:
    yield from causes.missing(source, ("server", "path"), field)
    path = source.get("path", "")
    if not path.startswith("/"):
        yield causes.invalid(f"{field}.path", path, "must be an absolute path")


def _downward(source: Json, field: str) -> Iterator[Cause]:
    yield from check_mode(source, "defaultMode", field)
    # kube-apiserver leaves `items` out of the field here.
    yield from _downward_files(source.get("items", []), field)


def _downward_files(items: list[Json], field: str) -> Iterator[Cause]:
    for each in items:
        yield from causes.missing(each, ("path",), field)
        yield from check_file(each.get("path", ""), f"{field}.path")
        if "fieldRef" in each:
            yield from check_field(each["fieldRef"], f"{field}.fieldRef", _FILE_FIELDS)
        elif "resourceFieldRef" in each:
            reference, at = each["resourceFieldRef"], f"{field}.resourceFieldRef"
            missing = causes.missing(reference, ("containerName",), at)
            yield from missing or check_resource_field(reference, at)
        else:
            yield causes.required(field, "one of fieldRef and resourceFieldRef is required")
        yield from check_mode(each, "mode", field)


def _projected(source: Json, field: str) -> Iterator[Cause]:
    yield from check_mode(source, "defaultMode", field)
    for index, each in enumerate(source.get("sources", [])):
        at = f"{field}.sources[{index}]"
        for name, check_one in _PROJECTIONS.items():
            if name in each:
                yield from check_one(each[name], f"{at}.{name}")
        token = each.get("serviceAccountToken")
        # kube-apiserver names neither source nor token here.
        if token is not None:
            yield from causes.missing(token, ("path",), field)
        yield from check_file((token or {}).get("path", ""), f"{field}.path")


def _projected_files(source: Json, field: str) -> Iterator[Cause]:
    yield from causes.missing(source, ("name",), field)
    yield from check_files(source.get("items", []), f"{field}.items")


def _projected_token(source: Json, field: str) -> Iterator[Cause]:
    seconds = source.get("expirationSeconds", _TOKEN_SECONDS[0])
    if seconds < _TOKEN_SECONDS[0]:
        detail = "may not specify a duration less than 10 minutes"
        yield causes.invalid(f"{field}.expirationSeconds", seconds, detail)
    if seconds > _TOKEN_SECONDS[1]:
        detail = "may not specify a duration larger than 2^32 seconds"
        yield causes.invalid(f"{field}.expirationSeconds", seconds, detail)


# In the order of kube-apiserver's checks: the first that is set counts as the source.
_SOURCES: dict[str, _Check] = {
    "emptyDir": _empty,
    "hostPath": _host_path,
    "secret": partial(_keyed, "secretName"),
    "nfs": _nfs,
    "persistentVolumeClaim": lambda source, field: causes.missing(source, ("claimName",), field),
    "downwardAPI": _downward,
    "configMap": partial(_keyed, "name"),
    "projected": _projected,
}
_ORDER = tuple(_SOURCES)
_PROJECTIONS: dict[str, _Check] = {
    "secret": _projected_files,
    "configMap": _projected_files,
    "downwardAPI": lambda source, field: _downward_files(source.get("items", []), field),
    "serviceAccountToken": _projected_token,
}
