"""Containers of Pods: ports, environment, mounts, resources, probes and lifecycle hooks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bramley.api import quantities
from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.kinds import amounts, pod_volumes
from bramley.apiserver.registry.resources import Json
from bramley.base.errors import Cause

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_SCHEMES = ("HTTP", "HTTPS")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_COUNTS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_SIDECAR_FIELDS = ("lifecycle", *_PROBES)
_NOT_A_SIDECAR = "may not be set for init containers without restartPolicy=Always"
_PORT = range(1, 65536)
_PORT_NUMBER = "must be between 1 and 65535, inclusive"
_IDS = range(2**31)
_HEADER = re.compile("[-A-Za-z0-9]+")
_NO_HEADER = (
    "a valid HTTP header must consist of alphanumeric characters or '-' "
    "(e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
)


def check(container: Json, field: str, volumes: set[str]) -> Iterator[Cause]:
    """Yield what is wrong with any container."""
    yield from causes.missing(container, ("name",), field)
    if name := container.get("name"):
        yield from causes.invalid_each(f"{field}.name", name, names.label(name))
    yield from causes.missing(container, ("image",), field)
    message_policy, pull_policy = (
        container["terminationMessagePolicy"],
        container["imagePullPolicy"],
    )
    yield from causes.not_one_of(
        f"{field}.terminationMessagePolicy", message_policy, _MESSAGE_POLICIES
    )
    yield from _validate_ports(container.get("ports", []), f"{field}.ports")
    yield from pod_volumes.check_env(container.get("env", []), f"{field}.env")
    yield from pod_volumes.check_env_from(container.get("envFrom", []), f"{field}.envFrom")
    yield from _validate_mounts(container, f"{field}.volumeMounts", volumes)
    yield from causes.not_one_of(f"{field}.imagePullPolicy", pull_policy, _PULL_POLICIES)
    yield from _validate_amounts(container["resources"], f"{field}.resources")
    yield from check_ids(
        container.get("securityContext", {}),
        ("runAsUser", "runAsGroup"),
        f"{field}.securityContext",
    )


def check_running(container: Json, field: str, grace: int) -> Iterator[Cause]:
    """Yield what is wrong with the hooks and probes of a container that keeps running."""
    hooks = container.get("lifecycle", {})
    for name in [each for each in _HOOKS if each in hooks]:
        yield from _validate_handler(hooks[name], f"{field}.lifecycle.{name}", grace)
    for name in [each for each in _PROBES if each in container]:
        yield from _validate_probe(container[name], f"{field}.{name}", grace)


def check_init(container: Json, field: str, grace: int) -> Iterator[Cause]:
    """Yield what is wrong with the hooks and probes of an init container; only a sidecar may have some."""
    if container.get("restartPolicy") == "Always":
        yield from check_running(container, field, grace)
        return
    for name in _SIDECAR_FIELDS:
        if name in container:
            yield causes.forbidden(f"{field}.{name}", _NOT_A_SIDECAR)


def check_host_ports(containers: Iterable[Json], field: str) -> Iterator[Cause]:
    """Yield a cause for each host port that two containers use."""
    used: set[str] = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(container.get("ports", [])):
            if not port.get("hostPort"):
                continue
            requested = f"{port['protocol']}/{port.get('hostIP', '')}/{port['hostPort']}"
            if requested in used:
                yield causes.duplicate(f"{field}[{index}].ports[{number}].hostPort", requested)
            used.add(requested)


def check_ids(context: Json, fields: Iterable[str], field: str) -> Iterator[Cause]:
    """Yield a cause for each user or group id that is out of range."""
    for name in fields:
        if name in context and context[name] not in _IDS:
            detail = f"must be between 0 and {_IDS[-1]}, inclusive"
            yield causes.invalid(f"{field}.{name}", context[name], detail)


def _validate_ports(ports: list[Json], field: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"{field}[{index}]", port.get("name", "")
        wrong = names.port(name) if name else []
        yield from causes.invalid_each(f"{at}.name", name, wrong)
        if name in seen:
            yield causes.duplicate(f"{at}.name", name)
        seen |= {name} - {""} if not wrong else set()
        yield from causes.missing(port, ("containerPort",), at)
        for each in ("containerPort", "hostPort"):
            if port.get(each) and port[each] not in _PORT:
                yield causes.invalid(f"{at}.{each}", port[each], _PORT_NUMBER)
        yield from causes.not_one_of(f"{at}.protocol", port["protocol"], _PROTOCOLS)


def _validate_mounts(container: Json, field: str, volumes: set[str]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", [])):
        at, path = f"{field}[{index}]", mount.get("mountPath", "")
        yield from causes.missing(mount, ("name",), at)
        if mount.get("name", "") not in volumes:
            yield causes.not_found(f"{at}.name", mount.get("name", ""))
        if not path:
            yield causes.required(f"{at}.mountPath")
        if path in seen:
            yield causes.invalid(f"{at}.mountPath", path, "must be unique")
        seen.add(path)
        # kube-apiserver names no index from here on.
        yield from _validate_mount_options(mount, field)


def _validate_mount_options(mount: Json, field: str) -> Iterator[Cause]:
    for name in ("subPath", "subPathExpr"):
        if mount.get(name):
            yield from pod_volumes.check_relative(mount[name], f"{field}.{name}")
    propagation = mount.get("mountPropagation", "None")
    yield from causes.not_one_of(f"{field}.mountPropagation", propagation, _PROPAGATIONS)


def _validate_amounts(resources: Json, field: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for name, amount in limits.items():
        yield from amounts.check_resource(name, amount, f"{field}.limits[{name}]")
    for name, amount in requests.items():
        yield from amounts.check_resource(name, amount, f"{field}.requests[{name}]")
        yield from _validate_request(name, amount, limits.get(name), field)


def _validate_request(name: str, amount: str, limit: str | None, field: str) -> Iterator[Cause]:
    shared = amounts.may_be_overcommitted(name)
    if limit is None:
        if not shared:
            detail = "Limit must be set for non overcommitable resources"
            yield causes.required(f"{field}.limits", detail)
        return
    requested, limited = quantities.parse(amount).value, quantities.parse(limit).value
    relation = "equal to" if not shared else "less than or equal to" if requested > limited else ""
    if relation and requested != limited:
        detail = f"must be {relation} {name} limit of {limit}"
        yield causes.invalid(f"{field}.requests", amount, detail)


def _validate_probe(probe: Json, field: str, grace: int) -> Iterator[Cause]:
    kind = field.rpartition(".")[2]
    yield from _validate_handler(probe, field, grace)
    yield from amounts.not_negative(probe, _COUNTS, field)
    grace_seconds = probe.get("terminationGracePeriodSeconds")
    at = f"{field}.terminationGracePeriodSeconds"
    if grace_seconds is not None and grace_seconds <= 0:
        yield causes.invalid(at, grace_seconds, "must be greater than 0")
    if kind == "readinessProbe":
        if grace_seconds is not None:
            yield causes.invalid(at, grace_seconds, "must not be set for readinessProbes")
    elif probe["successThreshold"] != 1:
        yield causes.invalid(f"{field}.successThreshold", probe["successThreshold"], "must be 1")


def _validate_handler(holder: Json, field: str, grace: int) -> Iterator[Cause]:
    handlers = [name for name in _HANDLERS if name in holder]
    if not handlers:
        yield causes.required(field, "must specify a handler type")
    for name in handlers[1:]:
        yield causes.forbidden(f"{field}.{name}", "may not specify more than 1 handler type")
    for name in handlers[:1]:
        yield from _validate_action(name, holder[name], f"{field}.{name}", grace)


def _validate_action(name: str, action: Json, field: str, grace: int) -> Iterator[Cause]:
    if name == "exec":
        yield from causes.missing(action, ("command",), field)
    if name in {"httpGet", "tcpSocket", "grpc"}:
        yield from _validate_port(action.get("port", 0), f"{field}.port")
    if name == "httpGet":
        yield from causes.not_one_of(f"{field}.scheme", action["scheme"], _SCHEMES)
        for header in (each.get("name", "") for each in action.get("httpHeaders", [])):
            if not _HEADER.fullmatch(header):
                yield causes.invalid(f"{field}.httpHeaders", header, _NO_HEADER)
    seconds = action.get("seconds", 0)
    if name == "sleep" and not 0 <= seconds <= grace:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield causes.invalid(field, seconds, detail)


def _validate_port(port: int | str, field: str) -> Iterator[Cause]:
    if isinstance(port, str):
        yield from causes.invalid_each(field, port, names.port(port))
    elif port not in _PORT:
        yield causes.invalid(field, port, _PORT_NUMBER)
