"""The core group without Pods, Nodes, networking and storage: ConfigMaps, Secrets, Namespaces, quotas and limits."""

from __future__ import annotations

import base64

import msgspec

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.kinds.definitions import kind, set_defaults
from bramley.apiserver.registry.resources import VERBS, Json, SelectableField, Strategy
from bramley.base.errors import Cause

SIZE_LIMIT_BYTES = 1024 * 1024
_IMMUTABLE = "field is immutable when `immutable` is set"
_REQUIRED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_DOCKER_CONFIGS = frozenset({"kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"})
_ACCOUNT = "kubernetes.io/service-account.name"
NAME_LABEL = "kubernetes.io/metadata.name"
_CONTENTS = "kubernetes"


def check_config_map(new: Json) -> list[Cause]:
    """Return what is wrong with a ConfigMap."""
    texts, binaries = new.get("data", {}), new.get("binaryData", {})
    errors = [*_validate_keys(texts, "data"), *_validate_keys(binaries, "binaryData")]
    errors += [
        causes.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        for key in texts
        if key in binaries
    ]
    size_bytes = sum(
        len(text) if text.isascii() else len(text.encode()) for text in texts.values()
    ) + _decoded_size(binaries)
    if size_bytes > SIZE_LIMIT_BYTES:
        # kube-apiserver names the whole object like this.
        errors.append(causes.too_long("[]", SIZE_LIMIT_BYTES))
    return errors


def default_secret(new: Json) -> None:
    """Set the default type of a Secret, and move `stringData` to `data`."""
    texts = new.pop("stringData", {})
    if texts:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        new["data"] = {**new.get("data", {}), **encoded}
    new.setdefault("type", "Opaque")


def check_secret(new: Json) -> list[Cause]:
    """Return what is wrong with a Secret, without showing its content."""
    values = new.get("data", {})
    errors = list(_validate_keys(values, "data"))
    if _decoded_size(values) > SIZE_LIMIT_BYTES:
        errors.append(causes.too_long("data", SIZE_LIMIT_BYTES))
    return errors + _validate_type(
        new.get("type", ""), values, new["metadata"].get("annotations", {})
    )


def check_secret_change(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a Secret."""
    errors = []
    if new.get("type") != old.get("type"):
        errors.append(causes.invalid("type", new.get("type"), "field is immutable"))
    return errors + _immutable_fields(new, old, "data")


def _validate_keys(values: Json, field: str) -> list[Cause]:
    return [
        causes.invalid(f"{field}[{key}]", key, wrong)
        for key in values
        for wrong in names.config_key(key)
    ]


def _validate_type(kind: str, values: Json, annotations: Json) -> list[Cause]:
    if kind == "kubernetes.io/service-account-token" and not annotations.get(_ACCOUNT):
        return [causes.required(f"metadata.annotations[{_ACCOUNT}]")]
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & values.keys():
        return [causes.required("data[username]"), causes.required("data[password]")]
    missing = [key for key in _REQUIRED.get(kind, ()) if key not in values]
    if missing or kind not in _DOCKER_CONFIGS:
        return [causes.required(f"data[{key}]") for key in missing]
    return _validate_docker_config(values, *_REQUIRED[kind])


def _validate_docker_config(values: Json, key: str) -> list[Cause]:
    try:
        msgspec.json.decode(base64.b64decode(values[key]), type=dict)
    except msgspec.MsgspecError as error:
        return [causes.invalid(f"data[{key}]", "<secret contents redacted>", str(error))]
    return []


def _immutable_fields(new: Json, old: Json, *fields: str) -> list[Cause]:
    if not old.get("immutable"):
        return []
    errors = [] if new.get("immutable") else [causes.forbidden("immutable", _IMMUTABLE)]
    return errors + [
        causes.forbidden(field, _IMMUTABLE) for field in fields if new.get(field) != old.get(field)
    ]


def _decoded_size(values: Json) -> int:
    return sum(len(text) * 3 // 4 - text.count("=", -2) for text in values.values())


def complete_namespace(new: Json) -> None:
    """Give a new namespace its first status, and the finalizer for its contents."""
    spec = new.setdefault("spec", {})
    finalizers = spec.get("finalizers", [])
    if _CONTENTS not in finalizers:
        spec["finalizers"] = [*finalizers, _CONTENTS]
    new["status"] = {"phase": "Active"}


def default_namespace(new: Json) -> None:
    """Set the label with the namespace's name."""
    meta = new["metadata"]
    if meta.get("name") and meta.get("labels", {}).get(NAME_LABEL) != meta["name"]:
        meta["labels"] = {**meta.get("labels", {}), NAME_LABEL: meta["name"]}


def keep_namespace(new: Json, old: Json) -> None:
    """Keep the finalizers in the spec; only the finalize subresource changes them."""
    spec = {key: value for key, value in new.get("spec", {}).items() if key != "finalizers"}
    if "finalizers" in old.get("spec", {}):
        spec["finalizers"] = old["spec"]["finalizers"]
    new["spec"] = spec


def check_quota(new: Json) -> list[Cause]:
    """Return what is wrong with a ResourceQuota."""
    errors: list[Cause] = []
    for name in new["spec"].get("hard", {}):
        field = f"spec.hard[{name}]"
        wrong = names.qualified_name(name)
        errors += causes.invalid_each(field, name, wrong)
        if wrong:
            errors.append(causes.invalid(field, name, "must be a standard resource for quota"))
    return errors


KINDS = (
    kind(
        "ConfigMap",
        short_names=("cm",),
        strategy=Strategy(
            validate=check_config_map,
            validate_update=lambda new, old: _immutable_fields(new, old, "data", "binaryData"),
        ),
    ),
    kind(
        "Secret",
        selectable=(SelectableField("type", ("type",)),),
        strategy=Strategy(
            default=default_secret, validate=check_secret, validate_update=check_secret_change
        ),
    ),
    kind(
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        has_status=True,
        selectable=(SelectableField("status.phase", ("status", "phase")),),
        verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
        strategy=Strategy(
            name=names.label,
            prepare_for_create=complete_namespace,
            default=default_namespace,
            prepare_for_update=keep_namespace,
            blocks_deletion=lambda new: bool(new.get("spec", {}).get("finalizers")),
            returns_deleted=True,
        ),
    ),
    kind(
        "ResourceQuota",
        short_names=("quota",),
        has_status=True,
        strategy=Strategy(
            default=set_defaults(spec={}, status={}), validate=check_quota, returns_deleted=True
        ),
    ),
    kind("Binding", verbs=("create",), is_virtual=True, strategy=Strategy()),
    kind(
        "LimitRange",
        short_names=("limits",),
        strategy=Strategy(
            default=lambda new: new.update(spec={"limits": None, **new.get("spec", {})}),
            create_on_update=True,
        ),
    ),
    kind("ServiceAccount", short_names=("sa",), strategy=Strategy(returns_deleted=True)),
)
