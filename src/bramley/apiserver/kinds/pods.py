"""Pods: what a spec must hold, in a Pod or in a template for Pods. What may change later is in `pod_changes`."""

from __future__ import annotations

from collections.abc import Iterator

from bramley.apiserver.apimachinery import causes, metadata, names
from bramley.apiserver.kinds import pod_containers, pod_placing, pod_volumes
from bramley.apiserver.registry.resources import Json, SelectableField
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
_OWNING = ("Always", "OnRootMismatch")
_MOST_SECONDS = 2**31 - 1


def check(new: Json) -> list[Cause]:
    """Return what is wrong with a Pod."""
    found = check_spec(new["spec"], "spec")
    if new["spec"].get("schedulingGates") and new["spec"].get("nodeName"):
        detail = "cannot be set until all schedulingGates have been cleared"
        found.append(causes.forbidden("spec.nodeName", detail))
    if not new["spec"].get("serviceAccountName"):
        found += pod_volumes.check_without_account(new["spec"].get("volumes", []), "spec.volumes")
    return found


def check_spec(spec: Json, field: str) -> list[Cause]:
    """Return what is wrong with the spec of a Pod that stands at a field, in the order in which a real server looks."""
    return [
        *pod_volumes.check(spec.get("volumes", []), f"{field}.volumes"),
        *_wrong_containers(spec, field),
        *_wrong_choices(spec, field),
        *metadata.check_labels(spec.get("nodeSelector", {}), f"{field}.nodeSelector"),
        *_wrong_identity(spec["securityContext"], f"{field}.securityContext"),
        *pod_placing.check_affinity(spec.get("affinity", {}), f"{field}.affinity"),
        *pod_placing.check_resolving(spec, f"{field}.dnsConfig"),
        *pod_placing.check_gates(spec, field),
        *pod_placing.check_spreading(
            spec.get("topologySpreadConstraints", []), f"{field}.topologySpreadConstraints"
        ),
        *_wrong_references(spec, field),
        *_wrong_numbers(spec, field),
        *pod_placing.check_names(spec, field),
        *pod_placing.check_tolerations(spec.get("tolerations", []), f"{field}.tolerations"),
        *pod_placing.check_aliases(spec.get("hostAliases", []), f"{field}.hostAliases"),
    ]


def _wrong_containers(spec: Json, field: str) -> Iterator[Cause]:
    volumes = {each.get("name", "") for each in spec.get("volumes", [])}
    grace = spec["terminationGracePeriodSeconds"]
    if not spec.get("containers"):
        yield causes.required(f"{field}.containers")
    seen: set[str] = set()
    for part in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(part, [])):
            at = f"{field}.{part}[{index}]"
            yield from pod_containers.check(container, at, volumes)
            yield from _wrong_name(container.get("name", ""), at, seen)
            if part == "containers":
                yield from pod_containers.check_running(container, at, grace)
            elif part == "initContainers":
                yield from pod_containers.check_initial(container, at, grace)
        if part == "containers":
            yield from pod_containers.check_host_ports(spec.get(part, []), f"{field}.{part}")


def _wrong_name(name: str, field: str, seen: set[str]) -> Iterator[Cause]:
    if name and name in seen:
        yield causes.duplicate(f"{field}.name", name)
    seen.add(name)


def _wrong_choices(spec: Json, field: str) -> Iterator[Cause]:
    for name, allowed in (("restartPolicy", _RESTARTS), ("dnsPolicy", _DNS)):
        if spec[name] not in allowed:
            yield causes.unsupported(f"{field}.{name}", spec[name], allowed)


def _wrong_identity(context: Json, field: str) -> Iterator[Cause]:
    groups = {
        f"supplementalGroups[{at}]": each
        for at, each in enumerate(context.get("supplementalGroups", []))
    }
    users = ("fsGroup", "runAsUser", "runAsGroup", *groups)
    yield from pod_containers.check_ids({**context, **groups}, users, field)
    policy = context.get("fsGroupChangePolicy", _OWNING[0])
    if policy not in _OWNING:
        yield causes.unsupported(f"{field}.fsGroupChangePolicy", policy, _OWNING)


def _wrong_references(spec: Json, field: str) -> Iterator[Cause]:
    for name in ("serviceAccountName", "nodeName"):
        for wrong in names.subdomain(spec[name]) if spec.get(name) else ():
            yield causes.invalid(f"{field}.{name}", spec[name], wrong)


def _wrong_numbers(spec: Json, field: str) -> Iterator[Cause]:
    deadline = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= deadline <= _MOST_SECONDS:
        detail = f"must be between 1 and {_MOST_SECONDS}, inclusive"
        yield causes.invalid(f"{field}.activeDeadlineSeconds", deadline, detail)
