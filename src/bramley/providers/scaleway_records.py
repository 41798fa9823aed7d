"""Scaleway's lists and records as values of `provider`. What is missing or of another type is a ValueError.

Lists are read page by page, oldest first, until their total count is reached: an incomplete one is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from bramley.api.names import machines
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.providers.os_families import Image
from bramley.providers.provider import Host, HostCredentials, HostRef, HostState, checked_id

if TYPE_CHECKING:
    from bramley.providers.scaleway_sdk import Sdk

PAGE_SIZE = 100
MAX_PAGES = 100
_OLDEST_FIRST = "created_at_asc"
_STATES = {
    "ready": HostState.READY,
    "reinstalling": HostState.REINSTALLING,
    "error": HostState.FAILED,
    "locked": HostState.FAILED,
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SshKey:
    """A registered key; `material` is its type and blob."""

    id: str
    name: str
    material: tuple[str, str] | None
    is_disabled: bool


def all_hosts(sdk: Sdk, zone: str) -> list[Host]:
    """Return the hosts of the project in a zone."""

    def page(number: int) -> Any:
        return sdk.hosts.list_servers(
            zone=zone,
            project_id=sdk.project_id,
            order_by=_OLDEST_FIRST,
            page=number,
            page_size=PAGE_SIZE,
        )

    return [host(each, zone) for each in _all(page, "servers")]


def all_images(sdk: Sdk, zone: str, type: str) -> list[Image]:
    """Return the images for a type of host."""

    def page(number: int) -> Any:
        return sdk.hosts.list_os(zone=zone, server_type=type, page=number, page_size=PAGE_SIZE)

    return [_image(each) for each in _all(page, "os")]


def all_ssh_keys(sdk: Sdk) -> list[SshKey]:
    """Return the SSH keys of the project, also disabled ones."""

    def page(number: int) -> Any:
        return sdk.iam.list_ssh_keys(
            project_id=sdk.project_id, order_by=_OLDEST_FIRST, page=number, page_size=PAGE_SIZE
        )

    return [
        SshKey(
            checked_id(text(key.id)),
            text(key.name),
            key_material(text(key.public_key)),
            bool(key.disabled),
        )
        for key in _all(page, "ssh_keys")
    ]


def host(server: Any, zone: str) -> Host:
    """Return a server as a host."""
    status = str(server.status)
    os = server.os
    return Host(
        ref=HostRef(zone, text(server.id)),
        name=text(server.name),
        type=text(server.type_),
        os_names=() if os is None else tuple(filter(None, (os.family, os.name))),
        state=_STATES.get(status, HostState.BUSY),
        status=status,
        is_delivered=server.delivered is True,
        is_deletion_scheduled=server.deletion_scheduled is True,
    )


def login(server: Any) -> HostCredentials:
    """Return the login of a server."""
    user = server.ssh_username or machines.DEFAULT_SSH_USER
    return HostCredentials(text(server.ip), text(user), sudo_password(server))


def sudo_password(server: Any) -> Secret | None:
    """Return the password of a server or else the one of its VNC URL; None if both are sealed or absent."""
    for password in (server.sudo_password, _password_of(server.vnc_url)):
        if isinstance(password, str) and password not in {"", machines.SEALED}:
            return Secret(password)
    return None


def key_material(public_key: str) -> tuple[str, str] | None:
    """Return type and blob of an OpenSSH public key without its comment; None if it is not one."""
    words = public_key.split()
    return (words[0], words[1]) if len(words) > 1 else None


def text(value: Any) -> str:
    """Return a value that must be a string and not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("expected a string")
    return value


def _password_of(vnc_url: Any) -> str | None:
    if not isinstance(vnc_url, str):
        return None
    try:
        password = urlsplit(vnc_url).password
    except ValueError:
        return None
    return None if password is None else unquote(password)


def _image(os: Any) -> Image:
    types = {each.server_type for each in os.supported_server_types or ()}
    return Image(
        id=text(os.id),
        os_names=tuple(filter(None, (os.family, os.name))),
        version=os.version or "",
        is_beta=os.is_beta is True,
        types=frozenset(types | set(os.compatible_server_types or ())),
        xcode_version=os.xcode_version or "",
    )


def _all(page: Callable[[int], Any], field: str) -> list[Any]:
    found: dict[str, Any] = {}
    for number in range(1, MAX_PAGES + 1):
        response = page(number)
        items = getattr(response, field)
        if response.total_count < len(items):
            raise ValueError("the total count is missing")
        found |= {text(item.id): item for item in items}
        if len(found) >= response.total_count:
            return list(found.values())
        if not items:
            break
    # A host that is removed meanwhile moves the later ones to the page before, so that one is missed.
    raise errors.ProviderUnavailable(f"the list of {field} changed while it was read")
