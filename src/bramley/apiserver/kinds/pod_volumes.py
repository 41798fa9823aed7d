"""Volumes of a Pod: one source each, and what the sources that we know must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.kinds import pod_sources
from bramley.apiserver.registry.resources import Json
from bramley.base.errors import Cause

_Check = Callable[[Json, str], Iterator[Cause]]
_IN_FILES = (
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
_PATIENCE = (600, 1 << 32)


def check(volumes: list[Json], field: str) -> Iterator[Cause]:
    """Yield what is wrong with the volumes of a Pod."""
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        at, name = f"{field}[{index}]", volume.get("name", "")
        yield from _wrong_source(volume, at)
        if not name:
            yield causes.required(f"{at}.name")
        for wrong in names.label(name) if name else ():
            yield causes.invalid(f"{at}.name", name, wrong)
        if name and name in seen:
            yield causes.duplicate(f"{at}.name", name)
        seen.add(name)


def check_without_account(volumes: list[Json], field: str) -> Iterator[Cause]:
    """Yield a breach for each token that a Pod wants although it is nobody."""
    for index, volume in enumerate(volumes):
        for number, each in enumerate(volume.get("projected", {}).get("sources", [])):
            if "serviceAccountToken" in each:
                at = f"{field}[{index}].projected.sources[{number}].serviceAccountToken"
                detail = "must not be specified when serviceAccountName is not set"
                yield causes.forbidden(at, detail)


def _wrong_source(volume: Json, field: str) -> Iterator[Cause]:
    given = [name for name in volume if name != "name"]
    ordered = sorted(given, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
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
    if source.get("type", "") not in _HOST_TYPES:
        yield causes.unsupported(f"{field}.type", source["type"], _HOST_TYPES)


def _secret(source: Json, field: str) -> Iterator[Cause]:
    if not source.get("secretName"):
        yield causes.required(f"{field}.secretName")
    yield from pod_sources.check_mode(source, "defaultMode", field)
    yield from pod_sources.check_files(source.get("items", []), f"{field}.items")


def _config_map(source: Json, field: str) -> Iterator[Cause]:
    if not source.get("name"):
        yield causes.required(f"{field}.name")
    yield from pod_sources.check_mode(source, "defaultMode", field)
    yield from pod_sources.check_files(source.get("items", []), f"{field}.items")


def _claim(source: Json, field: str) -> Iterator[Cause]:
    if not source.get("claimName"):
        yield causes.required(f"{field}.claimName")


def _share(source: Json, field: str) -> Iterator[Cause]:
    for name in ("server", "path"):
        if not source.get(name):
            yield causes.required(f"{field}.{name}")
    path = source.get("path", "")
    if not path.startswith("/"):
        yield causes.invalid(f"{field}.path", path, "must be an absolute path")


def _downward(source: Json, field: str) -> Iterator[Cause]:
    yield from pod_sources.check_mode(source, "defaultMode", field)
    # A real server leaves `items` out of the field here.
    yield from _downward_files(source.get("items", []), field)


def _downward_files(items: list[Json], field: str) -> Iterator[Cause]:
    for each in items:
        if not each.get("path"):
            yield causes.required(f"{field}.path")
        yield from pod_sources.check_file(each.get("path", ""), f"{field}.path")
        if "fieldRef" in each:
            yield from pod_sources.check_field(each["fieldRef"], f"{field}.fieldRef", _IN_FILES)
        elif "resourceFieldRef" in each:
            yield from _amount(each["resourceFieldRef"], f"{field}.resourceFieldRef")
        else:
            yield causes.required(field, "one of fieldRef and resourceFieldRef is required")
        yield from pod_sources.check_mode(each, "mode", field)


def _amount(reference: Json, field: str) -> Iterator[Cause]:
    if not reference.get("containerName"):
        yield causes.required(f"{field}.containerName")
    else:
        yield from pod_sources.check_amount(reference, field)


def _projected(source: Json, field: str) -> Iterator[Cause]:
    yield from pod_sources.check_mode(source, "defaultMode", field)
    for index, each in enumerate(source.get("sources", [])):
        at = f"{field}.sources[{index}]"
        for name, check_one in _PROJECTIONS.items():
            if name in each:
                yield from check_one(each[name], f"{at}.{name}")
        token = each.get("serviceAccountToken")
        # A real server names neither source nor token here.
        if token is not None and not token.get("path"):
            yield causes.required(f"{field}.path")
        yield from pod_sources.check_file((token or {}).get("path", ""), f"{field}.path")


def _projected_files(source: Json, field: str) -> Iterator[Cause]:
    if not source.get("name"):
        yield causes.required(f"{field}.name")
    yield from pod_sources.check_files(source.get("items", []), f"{field}.items")


def _projected_fields(source: Json, field: str) -> Iterator[Cause]:
    yield from _downward_files(source.get("items", []), field)


def _projected_token(source: Json, field: str) -> Iterator[Cause]:
    seconds = source.get("expirationSeconds", _PATIENCE[0])
    if seconds < _PATIENCE[0]:
        detail = "may not specify a duration less than 10 minutes"
        yield causes.invalid(f"{field}.expirationSeconds", seconds, detail)
    if seconds > _PATIENCE[1]:
        detail = "may not specify a duration larger than 2^32 seconds"
        yield causes.invalid(f"{field}.expirationSeconds", seconds, detail)


# In this order a real server looks for them: what comes first is taken for the source.
_SOURCES: dict[str, _Check] = {
    "emptyDir": _empty,
    "hostPath": _host_path,
    "secret": _secret,
    "nfs": _share,
    "persistentVolumeClaim": _claim,
    "downwardAPI": _downward,
    "configMap": _config_map,
    "projected": _projected,
}
_ORDER = tuple(_SOURCES)
_PROJECTIONS: dict[str, _Check] = {
    "secret": _projected_files,
    "configMap": _projected_files,
    "downwardAPI": _projected_fields,
    "serviceAccountToken": _projected_token,
}
