"""ConfigMaps and Secrets: keys, sizes, what each type of Secret must hold, and what may not change."""

from __future__ import annotations

import base64

import msgspec

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.registry.resources import Json
from bramley.base.errors import Cause

SIZE_LIMIT_BYTES = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"
_REQUIRED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_JSON_INSIDE = frozenset({"kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"})
_ACCOUNT = "kubernetes.io/service-account.name"


def check_config_map(new: Json) -> list[Cause]:
    """Return what is wrong with a ConfigMap."""
    texts, binaries = new.get("data", {}), new.get("binaryData", {})
    found = [*_wrong_keys(texts, "data"), *_wrong_keys(binaries, "binaryData")]
    found += [
        causes.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        for key in texts
        if key in binaries
    ]
    size_bytes = sum(map(_size_bytes, texts.values())) + _decoded_size(binaries)
    if size_bytes > SIZE_LIMIT_BYTES:
        # A real server names the whole object so.
        found.append(causes.too_long("[]", SIZE_LIMIT_BYTES))
    return found


def check_config_map_change(new: Json, old: Json) -> list[Cause]:
    """Return what an update of a ConfigMap may not do."""
    return _frozen(new, old, "data", "binaryData")


def default_secret(new: Json) -> None:
    """Give a Secret its type, and move what was given as text to where it is kept."""
    texts = new.pop("stringData", {})
    if texts:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        new["data"] = {**new.get("data", {}), **encoded}
    new.setdefault("type", "Opaque")


def check_secret(new: Json) -> list[Cause]:
    """Return what is wrong with a Secret; what is in it is never repeated."""
    values = new.get("data", {})
    found = list(_wrong_keys(values, "data"))
    if _decoded_size(values) > SIZE_LIMIT_BYTES:
        found.append(causes.too_long("data", SIZE_LIMIT_BYTES))
    return found + _wrong_type(new.get("type", ""), values, new["metadata"].get("annotations", {}))


def check_secret_change(new: Json, old: Json) -> list[Cause]:
    """Return what an update of a Secret may not do."""
    found = []
    if new.get("type") != old.get("type"):
        found.append(causes.invalid("type", new.get("type"), "field is immutable"))
    return found + _frozen(new, old, "data")


def _wrong_keys(values: Json, field: str) -> list[Cause]:
    return [
        causes.invalid(f"{field}[{key}]", key, wrong)
        for key in values
        for wrong in names.config_key(key)
    ]


def _wrong_type(kind: str, values: Json, annotations: Json) -> list[Cause]:
    if kind == "kubernetes.io/service-account-token" and not annotations.get(_ACCOUNT):
        return [causes.required(f"metadata.annotations[{_ACCOUNT}]")]
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & values.keys():
        return [causes.required("data[username]"), causes.required("data[password]")]
    missing = [key for key in _REQUIRED.get(kind, ()) if key not in values]
    if missing or kind not in _JSON_INSIDE:
        return [causes.required(f"data[{key}]") for key in missing]
    return _wrong_json(values, *_REQUIRED[kind])


def _wrong_json(values: Json, key: str) -> list[Cause]:
    try:
        msgspec.json.decode(base64.b64decode(values[key]), type=dict)
    except msgspec.MsgspecError as error:
        return [causes.invalid(f"data[{key}]", "<secret contents redacted>", str(error))]
    return []


def _frozen(new: Json, old: Json, *fields: str) -> list[Cause]:
    if not old.get("immutable"):
        return []
    found = [] if new.get("immutable") else [causes.forbidden("immutable", _FROZEN)]
    return found + [
        causes.forbidden(field, _FROZEN) for field in fields if new.get(field) != old.get(field)
    ]


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _decoded_size(values: Json) -> int:
    return sum(len(text) * 3 // 4 - text.count("=", -2) for text in values.values())
