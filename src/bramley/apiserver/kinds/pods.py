"""Pods: what a spec must hold, in a Pod or in a template for Pods. What may change later is in `pod_changes`."""

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


def check(new: Json) -> list[Cause]:
    """Return what is wrong with a Pod."""
    found = check_spec(new["spec"], "spec")
    if new["spec"].get("schedulingGates") and new["spec"].get("nodeName"):
        detail = "cannot be set until all schedulingGates have been cleared"
        found.append(causes.forbidden("spec.nodeName", detail))
    return found


def check_spec(spec: Json, field: str) -> list[Cause]:
    """Return what is wrong with the spec of a Pod that stands at a field."""
    volumes = {each.get("name") for each in spec.get("volumes", [])}
    found = [*_wrong_volumes(spec, field)]
    if not spec.get("containers"):
        found.append(causes.required(f"{field}.containers"))
    seen: set[str] = set()
    for part in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(part, [])):
            at = f"{field}.{part}[{index}]"
            found += _wrong_container(container, at, volumes)
            found += _wrong_name(container.get("name", ""), at, seen)
    found += _wrong_choices(spec, field)
    return [*found, *_wrong_numbers(spec, field), *_wrong_places(spec, field)]


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


def _wrong_volumes(spec: Json, field: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes", [])):
        at, name = f"{field}.volumes[{index}]", volume.get("name", "")
        if not name:
            yield causes.required(f"{at}.name")
        for wrong in names.label(name) if name else ():
            yield causes.invalid(f"{at}.name", name, wrong)
        yield from _wrong_name(name, at, seen)


def _wrong_choices(spec: Json, field: str) -> Iterator[Cause]:
    for name, allowed in (("restartPolicy", _RESTARTS), ("dnsPolicy", _DNS)):
        if spec[name] not in allowed:
            yield causes.unsupported(f"{field}.{name}", spec[name], allowed)


def _wrong_numbers(spec: Json, field: str) -> Iterator[Cause]:
    deadline = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= deadline <= _MOST_SECONDS:
        detail = f"must be between 1 and {_MOST_SECONDS}, inclusive"
        yield causes.invalid(f"{field}.activeDeadlineSeconds", deadline, detail)


def _wrong_places(spec: Json, field: str) -> Iterator[Cause]:
    node = spec.get("nodeName", "")
    for wrong in names.subdomain(node) if node else ():
        yield causes.invalid(f"{field}.nodeName", node, wrong)
    yield from metadata.check_labels(spec.get("nodeSelector", {}), f"{field}.nodeSelector")
