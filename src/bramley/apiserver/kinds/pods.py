"""Pods: what must be there, and the little of a spec that may change."""

from __future__ import annotations

from collections.abc import Iterator

from bramley.apiserver import causes, metadata, names
from bramley.apiserver.resources import Json, SelectableField
from bramley.base.errors import Cause

FIELDS = (
    SelectableField("spec.nodeName", ("spec", "nodeName")),
    SelectableField("spec.restartPolicy", ("spec", "restartPolicy")),
    SelectableField("spec.schedulerName", ("spec", "schedulerName")),
    SelectableField("spec.serviceAccountName", ("spec", "serviceAccountName")),
    SelectableField("spec.hostNetwork", ("spec", "hostNetwork"), "false"),
    SelectableField("status.phase", ("status", "phase")),
    SelectableField("status.podIP", ("status", "podIP")),
    SelectableField("status.nominatedNodeName", ("status", "nominatedNodeName")),
)
_RESTARTS = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULLS = ("Always", "IfNotPresent", "Never")
_MOST_SECONDS = 2**31 - 1
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check(new: Json) -> list[Cause]:
    """Return what is wrong with a Pod."""
    spec = new["spec"]
    volumes = {each.get("name") for each in spec.get("volumes", [])}
    found = [*_wrong_volumes(spec)]
    if not spec.get("containers"):
        found.append(causes.required("spec.containers"))
    seen: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field, [])):
            at = f"spec.{field}[{index}]"
            found += _wrong_container(container, at, volumes)
            found += _wrong_name(container.get("name", ""), at, seen)
    return [*found, *_wrong_choices(spec), *_wrong_numbers(spec), *_wrong_places(spec)]


def check_change(new: Json, old: Json) -> list[Cause]:
    """Return what an update of a Pod may not do."""
    found: list[Cause] = []
    for field in ("containers", "initContainers"):
        now, was = new["spec"].get(field, []), old["spec"].get(field, [])
        if len(now) != len(was):
            detail = "pod updates may not add or remove containers"
            return [causes.forbidden(f"spec.{field}", detail)]
    found += _wrong_deadline(new["spec"], old["spec"])
    found += _wrong_tolerations(new["spec"], old["spec"])
    if _fixed_part(new["spec"]) != _fixed_part(old["spec"]):
        found.append(causes.forbidden("spec", _MAY_CHANGE))
    return found


def _fixed_part(spec: Json) -> Json:
    fixed = {
        key: value
        for key, value in spec.items()
        if key not in {"activeDeadlineSeconds", "tolerations"}
    }
    for field in ("containers", "initContainers"):
        fixed[field] = [{**each, "image": ""} for each in spec.get(field, [])]
    return fixed


def _wrong_deadline(new: Json, old: Json) -> list[Cause]:
    field, was, now = (
        "spec.activeDeadlineSeconds",
        old.get("activeDeadlineSeconds"),
        new.get("activeDeadlineSeconds"),
    )
    if was is None or was == now:
        return []
    if now is None:
        detail = "must not update from a positive integer to nil value"
        return [causes.invalid(field, now, detail)]
    detail = "must be less than or equal to previous value"
    return [causes.invalid(field, now, detail)] if now > was else []


def _wrong_tolerations(new: Json, old: Json) -> list[Cause]:
    missing = [
        each for each in old.get("tolerations", []) if each not in new.get("tolerations", [])
    ]
    detail = "existing toleration can not be modified except its tolerationSeconds"
    return [causes.forbidden("spec.tolerations", detail)] if missing else []


def _wrong_container(container: Json, field: str, volumes: set[str]) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield causes.required(f"{field}.name")
    for wrong in names.label(name) if name else ():
        yield causes.invalid(f"{field}.name", name, wrong)
    if not container.get("image"):
        yield causes.required(f"{field}.image")
    if container["imagePullPolicy"] not in _PULLS:
        policy = container["imagePullPolicy"]
        yield causes.unsupported(f"{field}.imagePullPolicy", policy, _PULLS)
    for index, mount in enumerate(container.get("volumeMounts", [])):
        yield from _wrong_mount(mount, f"{field}.volumeMounts[{index}]", volumes)
    for index, variable in enumerate(container.get("env", [])):
        if not variable.get("name"):
            yield causes.required(f"{field}.env[{index}].name")


def _wrong_mount(mount: Json, field: str, volumes: set[str]) -> Iterator[Cause]:
    if not mount.get("name"):
        yield causes.required(f"{field}.name")
    elif mount["name"] not in volumes:
        yield causes.not_found(f"{field}.name", mount["name"])
    if not mount.get("mountPath"):
        yield causes.required(f"{field}.mountPath")


def _wrong_name(name: str, field: str, seen: set[str]) -> Iterator[Cause]:
    if name and name in seen:
        yield causes.duplicate(f"{field}.name", name)
    seen.add(name)


def _wrong_volumes(spec: Json) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes", [])):
        field, name = f"spec.volumes[{index}]", volume.get("name", "")
        if not name:
            yield causes.required(f"{field}.name")
        for wrong in names.label(name) if name else ():
            yield causes.invalid(f"{field}.name", name, wrong)
        yield from _wrong_name(name, field, seen)


def _wrong_choices(spec: Json) -> Iterator[Cause]:
    for field, allowed in (("restartPolicy", _RESTARTS), ("dnsPolicy", _DNS)):
        if spec[field] not in allowed:
            yield causes.unsupported(f"spec.{field}", spec[field], allowed)


def _wrong_numbers(spec: Json) -> Iterator[Cause]:
    deadline = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= deadline <= _MOST_SECONDS:
        detail = f"must be between 1 and {_MOST_SECONDS}, inclusive"
        yield causes.invalid("spec.activeDeadlineSeconds", deadline, detail)


def _wrong_places(spec: Json) -> Iterator[Cause]:
    node = spec.get("nodeName", "")
    for wrong in names.subdomain(node) if node else ():
        yield causes.invalid("spec.nodeName", node, wrong)
    yield from metadata.check_labels(spec.get("nodeSelector", {}), "spec.nodeSelector")
