"""The scale subresource: an `autoscaling/v1` Scale read out of an object, and written back into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bramley.apiserver.apimachinery import causes, selectors, status
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.kinds import label_selectors
from bramley.apiserver.registry.resources import Json, ScalePaths
from bramley.base.errors import Cause

_MOST = 2**31 - 1
_GO_TYPES = {str: "string", float: "float64", bool: "bool", list: "[]interface {}"}
_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def of(body: Json, paths: ScalePaths, *, reading: bool = False) -> Json:
    """Return an object's Scale; when it is read and has no replicas, raise a 500 as kube-apiserver does."""
    replicas = _at(body, paths.spec_replicas)
    if replicas is None and reading:
        field = causes.quoted(paths.spec_replicas)
        raise status.internal(f"the spec replicas field {field} does not exist")
    scale_status: Json = {"replicas": _at(body, paths.status_replicas) or 0}
    selector = _at(body, paths.label_selector) if paths.label_selector else None
    if selector:
        scale_status["selector"] = (
            selector if isinstance(selector, str) else label_selectors.text(selector)
        )
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: body["metadata"][key] for key in _SHOWN if key in body["metadata"]},
        "spec": {"replicas": replicas} if replicas else {},
        "status": scale_status,
    }


def with_replicas(body: Json, replicas: int, paths: ScalePaths) -> Json:
    """Return the object with another number of replicas; it shares all other values with the old one."""
    return _with(body, _parts(paths.spec_replicas), replicas)


def desired_replicas(scale: Json) -> int:
    """Return the desired replicas of a Scale."""
    replicas: int = (scale.get("spec") or {}).get("replicas", 0)
    return replicas


def check(body: Json, paths: ScalePaths) -> list[Cause]:
    """Return what is wrong with a custom resource's scale fields; built-in kinds have their own checks."""
    if not paths.is_custom:
        return []
    errors = check_counts(body, paths)
    selector = _at(body, paths.label_selector) if paths.label_selector else None
    if paths.label_selector and isinstance(selector, str):
        try:
            selectors.parse_labels(selector)
        except ApiError as wrong:
            errors.append(causes.invalid(paths.label_selector, selector, wrong.message))
    return errors


def check_counts(body: Json, paths: ScalePaths) -> list[Cause]:
    """Return what is wrong with a custom resource's numbers of replicas; an update of the status checks nothing else."""
    if not paths.is_custom:
        return []
    return [
        *_validate_count(body, paths.spec_replicas),
        *_validate_count(body, paths.status_replicas),
    ]


def _validate_count(body: Json, path: str) -> Iterator[Cause]:
    count = _at(body, path)
    if count is None:
        return
    if type(count) is not int:
        yield causes.invalid(path, 0, f"{path} accessor error: {_misfit(count)}, expected int64")
    elif count < 0:
        yield causes.invalid(path, count, "should be a non-negative integer")
    elif count > _MOST:
        yield causes.invalid(path, count, f"should be less than or equal to {_MOST}")


def _misfit(value: Any) -> str:
    """Return Go's message about a value that is not a number."""
    shown = value if isinstance(value, str) else causes.text(value)
    return f"{shown} is of the type {_GO_TYPES.get(type(value), 'map[string]interface {}')}"


def _parts(path: str) -> list[str]:
    return path.removeprefix(".").split(".")


def _at(body: Json, path: str) -> Any:
    value: Any = body
    for part in _parts(path):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _with(body: Any, parts: list[str], value: int) -> Json:
    holder = dict(body) if isinstance(body, dict) else {}
    holder[parts[0]] = _with(holder.get(parts[0]), parts[1:], value) if parts[1:] else value
    return holder
