"""The registry: images of the settings and pushed images; its credentials, with `login` and `logout`.

A manifest is JSON of the real shape, and its hash is the image's digest unless the settings give one. Pushed images are in a folder
that several simulated Macs may share. Credentials are looked up as tart does: environment, Docker's file, keychain.
"""

import hashlib
import json
import os
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import Out, ReadStdin, Sleep, Steps
from bramley.sim.tart.failures import Failed, WrongUsage
from bramley.sim.tart.layout import Reference, find_reference
from bramley.sim.tart.settings import IMAGE, Context

CHUNK = 512 << 20
PREFIX = "org.cirruslabs.tart."
MEDIA = "application/vnd.cirruslabs.tart."
OCI = "application/vnd.oci.image."


class Remote(NamedTuple):
    """An image in the registry; `facts` are its settings, now or when it was pushed."""

    digest: str
    manifest: Mapping[str, Any]
    facts: Mapping[str, Any]


def find_image(context: Context, reference: Reference) -> Remote | None:
    """Return the image that a name refers to now."""
    return _pushed(context, reference) or next(_configured_images(context, reference), None)


def _configured_images(context: Context, requested: Reference) -> Iterator[Remote]:
    for name, facts in context.settings.images.items():
        reference = find_reference(name)
        if reference is None or reference.base != requested.base:
            continue
        if requested.tag and reference.tag != requested.tag:
            continue
        remote = _from_facts(context, name, facts, reference.digest)
        if requested.tag or remote.digest == requested.digest:
            yield remote


def _from_facts(context: Context, name: str, facts: Mapping[str, Any], digest: str) -> Remote:
    manifest = manifest_of(facts, chunks(context, name, facts), labels={})
    return Remote(facts["digest"] or digest or digest_of(manifest), manifest, facts)


def chunks(context: Context, name: str, facts: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return digest and compressed size of each chunk of the disk; images with a common base share the first ones."""
    count = max(1, -(-int(facts["disk_bytes"]) // CHUNK))
    each = compressed(facts) // count
    own = [(_hash(f"{name}#{index}".encode()), each) for index in range(count)]
    base = context.settings.images.get(facts["base"] or "")
    if base is None:
        return own
    shared = min(count, int(facts["shared_bytes"]) // max(1, each))
    return chunks(context, facts["base"], base)[:shared] + own[shared:]


def compressed(facts: Mapping[str, Any]) -> int:
    """Return the compressed size of the disk."""
    return int(facts["compressed_bytes"] or facts["size_bytes"] // 2)


def manifest_of(
    facts: Mapping[str, Any], parts: list[tuple[str, int]], *, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the manifest: configuration, disk, NVRAM, in this order."""
    disk_kind = "disk.v1" if facts["format"] == "v1" else "disk.v2"
    disk = [
        {
            "mediaType": MEDIA + disk_kind,
            "digest": digest,
            "size": size,
            "annotations": {
                f"{PREFIX}uncompressed-size": str(CHUNK),
                f"{PREFIX}uncompressed-content-digest": digest,
            },
        }
        for digest, size in parts
    ]
    return {
        "schemaVersion": 2,
        "mediaType": f"{OCI}manifest.v1+json",
        "config": {
            "mediaType": f"{OCI}config.v1+json",
            **_blob(json.dumps([facts["os"], dict(labels)])),
        },
        "layers": [
            {"mediaType": f"{MEDIA}config.v1", **_blob(_config(facts))},
            *disk,
            {"mediaType": f"{MEDIA}nvram.v1", **_blob("nvram")},
        ],
        "annotations": {f"{PREFIX}uncompressed-disk-size": str(facts["disk_bytes"])},
    }


def _config(facts: Mapping[str, Any]) -> str:
    """Return what else distinguishes two images; another guest script is another image."""
    return json.dumps([facts["cpu"], facts["memory_mb"], facts["guest"]], sort_keys=True)


def _blob(content: str) -> dict[str, Any]:
    return {"digest": _hash(content.encode()), "size": len(content)}


def parts_of(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Return the disk's parts of a manifest by digest."""
    layers = manifest["layers"]
    return {each["digest"]: each["size"] for each in layers if MEDIA + "disk." in each["mediaType"]}


def digest_of(manifest: Mapping[str, Any]) -> str:
    """Return the digest of a manifest."""
    return _hash(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode())


def _hash(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _pushed(context: Context, reference: Reference) -> Remote | None:
    folder = _folder(context, reference)
    digest = reference.digest
    try:
        if not digest:
            with open(os.path.join(folder, "tags", reference.tag), encoding="utf-8") as tag:
                digest = tag.read()
        with open(os.path.join(folder, "manifests", digest), encoding="utf-8") as file:
            stored = json.load(file)
    except FileNotFoundError:
        return None
    return Remote(digest, stored["manifest"], {**IMAGE, **stored["facts"]})


def store(context: Context, reference: Reference, remote: Remote) -> None:
    """Store an image under this name."""
    folder = _folder(context, reference)
    for kind in ("tags", "manifests"):
        os.makedirs(os.path.join(folder, kind), exist_ok=True)
    content = json.dumps({"manifest": remote.manifest, "facts": dict(remote.facts)})
    _replace(os.path.join(folder, "manifests", remote.digest), content, context)
    if reference.tag:
        _replace(os.path.join(folder, "tags", reference.tag), remote.digest, context)


def _replace(path: str, content: str, context: Context) -> None:
    unfinished = f"{path}.{context.entropy(4).hex()}"
    with open(unfinished, "w", encoding="utf-8") as file:
        file.write(content)
    os.replace(unfinished, path)


def _folder(context: Context, reference: Reference) -> str:
    return os.path.join(
        context.settings.registry, reference.host.replace(":", "%3A"), reference.repository
    )


def count_bytes(context: Context, verb: str, count: int) -> None:
    """Count what a command has transferred, for tests."""
    os.makedirs(context.hidden, exist_ok=True)
    with open(os.path.join(context.hidden, f"{verb}ed-bytes"), "a", encoding="utf-8") as file:
        file.write(f"{count}\n")


def check_login(context: Context, reference: Reference, facts: Mapping[str, Any]) -> None:
    """Fail without the right credentials for an image that needs them."""
    requested, host = facts["needs_login"], reference.host
    if not requested:
        return
    # In tart's order: environment, Docker's file, keychain.
    configured = _from_environment(context, host) or _from_docker(context, host)
    login = configured or _keychain(context).get(host)
    if login is None or (isinstance(requested, str) and login != requested):
        raise Failed(1, 'Error: AuthFailed(why: "received unexpected HTTP 401", details: "")')


def _from_environment(context: Context, host: str) -> str | None:
    env = context.environment
    user, password = env.get("TART_REGISTRY_USERNAME"), env.get("TART_REGISTRY_PASSWORD")
    if user is None or password is None or env.get("TART_REGISTRY_HOSTNAME", host) != host:
        return None
    return f"{user}:{password}"


def _from_docker(context: Context, host: str) -> str | None:
    path = os.path.join(context.environment.get("HOME", ""), ".docker", "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            inline = json.load(file).get("auths", {}).get(host, {}).get("auth", "")
    except (OSError, ValueError):
        return None
    pair = b64decode(inline).decode()
    # The real decoder requires exactly two parts: a password with a colon counts as none.
    return pair if pair.count(":") == 1 else None


def _keychain_file(context: Context) -> str:
    return os.path.join(context.hidden, "keychain.json")


def _keychain(context: Context) -> dict[str, str]:
    try:
        with open(_keychain_file(context), encoding="utf-8") as file:
            items: dict[str, str] = json.load(file)
    except FileNotFoundError:
        return {}
    return items


def _save_keychain(context: Context, items: dict[str, str]) -> None:
    if not context.settings.host["has_session"]:
        raise Failed(
            1,
            "Keychain returned unsuccessful status -25308: User interaction is not allowed.",
        )
    os.makedirs(context.hidden, exist_ok=True)
    descriptor = os.open(_keychain_file(context), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(items, file)


def login(arguments: Arguments, context: Context) -> Steps:
    """Store credentials in the keychain, which needs a session."""
    user = arguments.find("username")
    if (user is None) == arguments.has("password-stdin"):
        raise WrongUsage("either both or none of --username and --password-stdin must be provided")
    if user is None:
        raise Failed(1, "Error: there is no terminal to read a password from")
    password: bytes = yield ReadStdin()
    yield Sleep(context.settings.seconds("manifest"))
    pair = f"{user}:{password.decode().strip()}"
    _save_keychain(context, {**_keychain(context), arguments["host"]: pair})
    return 0


def logout(arguments: Arguments, context: Context) -> Steps:
    """Remove credentials; having none is no error."""
    items = _keychain(context)
    if items.pop(arguments["host"], None) is not None:
        _save_keychain(context, items)
    else:
        yield Out(f"no credentials for {arguments['host']} to remove")
    return 0
