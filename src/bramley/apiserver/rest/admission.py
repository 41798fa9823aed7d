"""What the admission plugins of every cluster do to a new object: they complete it from others, or refuse it.

Priorities, runtimes and addresses are always admitted so. ServiceAccounts and the taint of new Nodes only where a cluster's
controllers run, because these make the accounts and take the taint away again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from bramley.apiserver.apimachinery import names, status
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import addresses
from bramley.apiserver.rest.server import Server, decoded
from bramley.apiserver.store.records import Key, Record

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


class _Priority(msgspec.Struct, rename="camel"):
    value: int
    preemption_policy: str


class _Reference(msgspec.Struct):
    name: str


class _Account(msgspec.Struct, rename="camel"):
    automount_service_account_token: bool | None = None
    image_pull_secrets: list[_Reference] | None = None


def completed(server: Server, resource: ServedResource, body: Json) -> Json:
    """Return a new object as admission leaves it; raise a 403 when it may not be."""
    mutate = _MUTATING.get(resource.stored_name)
    return body if mutate is None else mutate(server, resource, body)


async def wait_for_account(server: Server, resource: ServedResource, body: Json) -> None:
    """Give the controller that makes default ServiceAccounts a moment, when a Pod needs one in a new namespace."""
    if resource.stored_name != "pods" or not server.settings.cluster_admission:
        return
    spec = body.get("spec", {})
    if (spec.get("serviceAccountName") or spec.get("serviceAccount") or _DEFAULT) != _DEFAULT:
        return
    key = Key("serviceaccounts", body["metadata"].get("namespace", ""), _DEFAULT)
    pause_seconds = 0.1 + 0.1 * server.chance.random()
    for _ in range(_TRIES - 1):
        if server.store.get(key) is not None:
            return
        await asyncio.sleep(pause_seconds)


def finished(server: Server, resource: ServedResource, new: Json) -> Json:
    """Return a valid new object with what is only given out once it is sure to be stored; raise what is in the way."""
    finish = _FINISHING.get(resource.stored_name)
    return new if finish is None else finish(server, resource, new)


def _priority(server: Server, resource: ServedResource, new: Json) -> Json:
    """Refuse a PriorityClass that wants to be the default beside another one."""
    for each in _default_priorities(server) if new.get("globalDefault") else ():
        why = f"PriorityClass {each.key.name} is already marked as default. Only one default can exist"
        raise status.forbidden(resource.details(new["metadata"]["name"]), why)
    return new


def _pod(server: Server, resource: ServedResource, body: Json) -> Json:
    body = {**body, "spec": dict(body.get("spec", {}))}
    name, spec = body["metadata"].get("name", ""), body["spec"]

    def refuse(why: str) -> status.ApiError:
        return status.forbidden(resource.details(name), why)

    if server.settings.cluster_admission:
        account = _account(server, body)
        if isinstance(account, str):
            raise refuse(account)
        _use_account(server, spec, account)
    for admit in (_set_priority, _set_runtime):
        wrong = admit(server, spec)
        if wrong:
            raise refuse(wrong)
    return body


def _account(server: Server, body: Json) -> Json | str:
    """Return a Pod's ServiceAccount, an empty one for mirror Pods, or why there is none."""
    spec, namespace = body["spec"], body["metadata"].get("namespace", "")
    if _MIRROR in body["metadata"].get("annotations", {}):
        return {}
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or _DEFAULT
    record = server.store.get(Key("serviceaccounts", namespace, name))
    if record is None:
        return f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
    spec["serviceAccountName"] = name
    return _fitting(server, record, _Account) or {"metadata": {"name": name}}


def _use_account(server: Server, spec: Json, account: Json) -> None:
    if not account:
        return
    wanted = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken"))
    if wanted is not False:
        _mount_token(server, spec)
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [{"name": each["name"]} for each in account["imagePullSecrets"]]


def _mount_token(server: Server, spec: Json) -> None:
    volumes = list(spec.get("volumes", []))
    given = [each["name"] for each in volumes if each.get("name", "").startswith(_VOLUME)]
    name = given[0] if given else names.generate(_VOLUME, server.chance)
    mounted = False
    for part in ("initContainers", "containers"):
        if part in spec:
            spec[part] = [_with_mount(each, name) for each in spec[part]]
            mounted = mounted or any(_mounts(each, name) for each in spec[part])
    if mounted and not given:
        spec["volumes"] = [*volumes, {"name": name, "projected": _token_volume()}]


def _with_mount(container: Json, volume: str) -> Json:
    mounts = container.get("volumeMounts", [])
    if any(each.get("mountPath") == _MOUNTED_AT for each in mounts):
        return container
    mount = {"name": volume, "readOnly": True, "mountPath": _MOUNTED_AT}
    return {**container, "volumeMounts": [*mounts, mount]}


def _mounts(container: Json, volume: str) -> bool:
    return any(each.get("name") == volume for each in container["volumeMounts"])


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
    """Give a Pod the priority of its class; return what is wrong with that."""
    name = spec.get("priorityClassName", "")
    found = _priority_class(server, name)
    if name and found is None:
        return f"no PriorityClass with name {name} was found"
    priority = found["value"] if found else 0
    if spec.get("priority", priority) != priority:
        return f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
    spec["priority"] = priority
    if found is None:
        return ""
    policy = found["preemptionPolicy"]
    if spec.get("preemptionPolicy", policy) != policy:
        return f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
    spec["preemptionPolicy"] = policy
    spec["priorityClassName"] = found["metadata"]["name"]
    return ""


def _priority_class(server: Server, name: str) -> Json | None:
    if name:
        record = server.store.get(Key(_PRIORITIES, "", name))
        return None if record is None else _fitting(server, record, _Priority)
    defaults = [decoded(each) for each in _default_priorities(server)]
    return min(defaults, key=lambda each: int(each["value"]), default=None)


def _default_priorities(server: Server) -> list[Record]:
    listed = server.store.list(_PRIORITIES)
    marked = (each for each in listed if b'"globalDefault":true' in each.body)
    return [each for each in marked if _fitting(server, each, _Priority)]


def _fitting(server: Server, record: Record, form: type[msgspec.Struct]) -> Json | None:
    """Return an object, or None when what admission needs of it has not this form."""
    with server.store.damage.skip_unreadable(record):
        msgspec.json.decode(record.body, type=form)
        return decoded(record)
    return None


def _set_runtime(server: Server, spec: Json) -> str:
    """Give a Pod what its RuntimeClass adds; return what is wrong with that."""
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
    where = runtime.get("scheduling", {})
    if where.get("nodeSelector"):
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **where["nodeSelector"]}
    added = [
        each for each in where.get("tolerations", []) if each not in spec.get("tolerations", [])
    ]
    if added:
        spec["tolerations"] = [*spec.get("tolerations", []), *added]
    return ""


def _node(server: Server, _resource: ServedResource, body: Json) -> Json:
    """Keep Pods off a new Node until its controller has seen that it is ready."""
    if not server.settings.cluster_admission:
        return body
    spec = body.get("spec", {})
    taints = spec.get("taints", [])
    wanted = (_NOT_READY["key"], _NOT_READY["effect"])
    if any((each.get("key"), each.get("effect")) == wanted for each in taints):
        return body
    return {**body, "spec": {**spec, "taints": [*taints, dict(_NOT_READY)]}}


_MUTATING: Mapping[str, Mutate] = MappingProxyType({"pods": _pod, "nodes": _node})
_FINISHING: Mapping[str, Mutate] = MappingProxyType(
    {"services": addresses.completed, _PRIORITIES: _priority}
)
