"""Built-in admission of new objects: defaults from other objects, refusals, and the allocation of Service addresses.

Priorities, runtime classes and addresses are always handled. ServiceAccounts of Pods and the taint of new Nodes only with the
cluster's controllers, because these create the accounts and remove the taint.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping

import msgspec

from bramley.apiserver.apimachinery import causes, names, status
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest.server import Server, decoded
from bramley.apiserver.store.records import Key, Record
from bramley.base.errors import Cause

_CLUSTER_IP = "spec.clusterIP"
_NODE_PORTS = range(30000, 32768)
_MIN_STATIC, _MAX_STATIC = 16, 256
Mutate = Callable[[Server, ServedResource, Json], Json]
_PRIORITIES = "priorityclasses.scheduling.k8s.io"
_RUNTIMES = "runtimeclasses.node.k8s.io"
_MIRROR = "kubernetes.io/config.mirror"
_DEFAULT = "default"
_VOLUME = "kube-api-access-"
_MOUNTED_AT = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_SECONDS = 3607
_NOT_READY: Json = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_TRIES = 10


def mutate(server: Server, resource: ServedResource, body: Json) -> Json:
    """Return a new object as admission changes it; raise a 403 when admission refuses it."""
    mutate = _MUTATE.get(resource.stored_name)
    return body if mutate is None else mutate(server, resource, body)


def finish_create(server: Server, resource: ServedResource, new: Json) -> Json:
    """Return a valid new object with what is allocated just before it is stored; raise an error if that fails."""
    finish = _FINISH_CREATE.get(resource.stored_name)
    return new if finish is None else finish(server, resource, new)


def allocate_addresses(server: Server, resource: ServedResource, new: Json) -> Json:
    """Return a new Service with a cluster IP, and with node ports if its type has them."""
    spec = dict(new["spec"])
    if spec["type"] == "ExternalName" or spec.get("clusterIP") == "None":
        return new
    requested = spec.get("clusterIP", "")
    address = (
        _requested_address(server, resource, new, requested=requested)
        if requested
        else _free_address(server)
    )
    spec["clusterIP"], spec["clusterIPs"] = address, [address]
    if spec["type"] in {"NodePort", "LoadBalancer"}:
        spec["ports"] = _with_node_ports(server, spec["ports"])
    return {**new, "spec": spec}


def api_server_address(server: Server) -> str:
    """Return the cluster IP of the API server."""
    return str(_service_range(server)[1])


def _used_addresses(server: Server) -> set[str]:
    # Pending ones count: two Services created at the same moment must not get one address.
    return {each.fields.get(_CLUSTER_IP, "") for each in server.store.list_with_pending("services")}


def _requested_address(
    server: Server, resource: ServedResource, new: Json, *, requested: str
) -> str:
    reason = ""
    if ipaddress.ip_address(requested) not in _service_range(server):
        reason = "the provided network does not match the current range"
    elif requested in _used_addresses(server):
        reason = "provided IP is already allocated"
    if not reason:
        return requested
    shown = causes.text([requested])
    message = f"Invalid value: {shown}: failed to allocate IP {requested}: {reason}"
    wrong = Cause("spec.clusterIPs", "FieldValueInvalid", message)
    raise status.invalid(resource.kind_details(new["metadata"]["name"]), [wrong])


def _service_range(server: Server) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(server.settings.service_range)


def _free_address(server: Server) -> str:
    used, network = _used_addresses(server), _service_range(server)
    # The first address belongs to the API server.
    hosts = [str(each) for each in network.hosts()][1:]
    reserved = _reserved_for_static(network.num_addresses)
    for band in (hosts[reserved:], hosts[:reserved]):
        if free := [each for each in band if each not in used]:
            return server.rng.choice(free)
    raise status.internal("failed to allocate a serviceIP: range is full")


def _reserved_for_static(size: int) -> int:
    """Return how many of the lowest addresses are allocated last, so that statically chosen ones are free."""
    return 0 if size <= _MIN_STATIC else min(max(_MIN_STATIC, size // 16), _MAX_STATIC)


def _with_node_ports(server: Server, ports: list[Json]) -> list[Json]:
    used = _used_ports(server)
    given = []
    for port in ports:
        free = [each for each in _NODE_PORTS if each not in used]
        number = port.get("nodePort") or server.rng.choice(free)
        # Two ports of the same Service must differ, too.
        used.add(number)
        given.append({**port, "nodePort": number})
    return given


def _used_ports(server: Server) -> set[int]:
    used: set[int] = set()
    for each in server.store.list_with_pending("services"):
        with server.store.damage.skip_unreadable(each):
            used.update(port.get("nodePort", 0) for port in decoded(each)["spec"].get("ports", []))
    return used


class _Priority(msgspec.Struct, rename="camel"):
    value: int
    preemption_policy: str


class _Reference(msgspec.Struct):
    name: str


class _Account(msgspec.Struct, rename="camel"):
    automount_service_account_token: bool | None = None
    image_pull_secrets: list[_Reference] | None = None


async def wait_for_account(server: Server, resource: ServedResource, body: Json) -> None:
    """Wait briefly for the default ServiceAccount of a new namespace when a Pod needs it."""
    if resource.stored_name != "pods" or not server.settings.cluster_admission:
        return
    spec = body.get("spec", {})
    if (spec.get("serviceAccountName") or spec.get("serviceAccount") or _DEFAULT) != _DEFAULT:
        return
    key = Key("serviceaccounts", body["metadata"].get("namespace", ""), _DEFAULT)
    pause_seconds = 0.1 + 0.1 * server.rng.random()
    for _ in range(_TRIES - 1):
        if server.store.get(key) is not None:
            return
        await asyncio.sleep(pause_seconds)


def _check_default(server: Server, resource: ServedResource, new: Json) -> Json:
    """Refuse a second default PriorityClass."""
    for each in _default_priorities(server) if new.get("globalDefault") else ():
        reason = f"PriorityClass {each.key.name} is already marked as default. Only one default can exist"
        raise status.forbidden(resource.details(new["metadata"]["name"]), reason)
    return new


def _mutate_pod(server: Server, resource: ServedResource, body: Json) -> Json:
    body = {**body, "spec": dict(body.get("spec", {}))}
    name, spec = body["metadata"].get("name", ""), body["spec"]

    def refuse(reason: str) -> status.ApiError:
        return status.forbidden(resource.details(name), reason)

    if server.settings.cluster_admission:
        account = _find_account(server, body)
        if isinstance(account, str):
            raise refuse(account)
        _use_account(server, spec, account)
    for admit in (_set_priority, _set_runtime):
        wrong = admit(server, spec)
        if wrong:
            raise refuse(wrong)
    return body


def _find_account(server: Server, body: Json) -> Json | str:
    """Return a Pod's ServiceAccount, an empty one for mirror Pods, or an error message."""
    spec, namespace = body["spec"], body["metadata"].get("namespace", "")
    if _MIRROR in body["metadata"].get("annotations", {}):
        return {}
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or _DEFAULT
    record = server.store.get(Key("serviceaccounts", namespace, name))
    if record is None:
        return f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
    spec["serviceAccountName"] = name
    return _decode_if_valid(server, record, _Account) or {"metadata": {"name": name}}


def _use_account(server: Server, spec: Json, account: Json) -> None:
    if not account:
        return
    automount = spec.get(
        "automountServiceAccountToken", account.get("automountServiceAccountToken")
    )
    if automount is not False:
        _mount_token(server, spec)
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [{"name": each["name"]} for each in account["imagePullSecrets"]]


def _mount_token(server: Server, spec: Json) -> None:
    volumes = list(spec.get("volumes", []))
    existing = [each["name"] for each in volumes if each.get("name", "").startswith(_VOLUME)]
    name = existing[0] if existing else names.generate(_VOLUME, server.rng)
    mounted = False
    for part in ("initContainers", "containers"):
        if part in spec:
            spec[part] = [_with_mount(each, name) for each in spec[part]]
            mounts = (mount for each in spec[part] for mount in each["volumeMounts"])
            mounted = mounted or any(each.get("name") == name for each in mounts)
    if mounted and not existing:
        spec["volumes"] = [*volumes, {"name": name, "projected": _token_volume()}]


def _with_mount(container: Json, volume: str) -> Json:
    mounts = container.get("volumeMounts", [])
    if any(each.get("mountPath") == _MOUNTED_AT for each in mounts):
        return container
    mount = {"name": volume, "readOnly": True, "mountPath": _MOUNTED_AT}
    return {**container, "volumeMounts": [*mounts, mount]}


def _token_volume() -> Json:
    item = {
        "path": "namespace",
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
    }
    root = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
            {"configMap": root},
            {"downwardAPI": {"items": [item]}},
        ],
        "defaultMode": 0o644,
    }


def _set_priority(server: Server, spec: Json) -> str:
    """Set a Pod's priority from its class; return an error message or an empty text."""
    name = spec.get("priorityClassName", "")
    priority_class = _priority_class(server, name)
    if name and priority_class is None:
        return f"no PriorityClass with name {name} was found"
    priority = priority_class["value"] if priority_class else 0
    if spec.get("priority", priority) != priority:
        return f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
    spec["priority"] = priority
    if priority_class is None:
        return ""
    policy = priority_class["preemptionPolicy"]
    if spec.get("preemptionPolicy", policy) != policy:
        return f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
    spec["preemptionPolicy"] = policy
    spec["priorityClassName"] = priority_class["metadata"]["name"]
    return ""


def _priority_class(server: Server, name: str) -> Json | None:
    if name:
        record = server.store.get(Key(_PRIORITIES, "", name))
        return None if record is None else _decode_if_valid(server, record, _Priority)
    defaults = [decoded(each) for each in _default_priorities(server)]
    return min(defaults, key=lambda each: int(each["value"]), default=None)


def _default_priorities(server: Server) -> list[Record]:
    listed = server.store.list(_PRIORITIES)
    marked = (each for each in listed if b'"globalDefault":true' in each.body)
    return [each for each in marked if _decode_if_valid(server, each, _Priority)]


def _decode_if_valid(server: Server, record: Record, form: type[msgspec.Struct]) -> Json | None:
    """Return an object, or None if the fields that admission needs do not have this form."""
    with server.store.damage.skip_unreadable(record):
        msgspec.json.decode(record.body, type=form)
        return decoded(record)
    return None


def _set_runtime(server: Server, spec: Json) -> str:
    """Set what a Pod's RuntimeClass adds; return an error message or an empty text."""
    name = spec.get("runtimeClassName", "")
    if not name:
        return ""
    record = server.store.get(Key(_RUNTIMES, "", name))
    if record is None:
        return f'pod rejected: RuntimeClass "{name}" not found'
    runtime = decoded(record)
    overhead = runtime.get("overhead", {}).get("podFixed")
    if overhead:
        if spec.get("overhead", overhead) != overhead:
            return "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        spec["overhead"] = overhead
    scheduling = runtime.get("scheduling", {})
    if scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **scheduling["nodeSelector"]}
    added = [
        each
        for each in scheduling.get("tolerations", [])
        if each not in spec.get("tolerations", [])
    ]
    if added:
        spec["tolerations"] = [*spec.get("tolerations", []), *added]
    return ""


def _taint_node(server: Server, _resource: ServedResource, body: Json) -> Json:
    """Taint a new Node as not ready until its controller finds that it is ready."""
    if not server.settings.cluster_admission:
        return body
    spec = body.get("spec", {})
    taints = spec.get("taints", [])
    automount = (_NOT_READY["key"], _NOT_READY["effect"])
    if any((each.get("key"), each.get("effect")) == automount for each in taints):
        return body
    return {**body, "spec": {**spec, "taints": [*taints, dict(_NOT_READY)]}}


_MUTATE: Mapping[str, Mutate] = {"pods": _mutate_pod, "nodes": _taint_node}


_FINISH_CREATE: Mapping[str, Mutate] = {"services": allocate_addresses, _PRIORITIES: _check_default}
