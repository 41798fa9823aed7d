"""The arguments of Scaleway's calls, decoded and bounded; a refusal names the argument that is wrong."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec

from bramley.sim.scaleway import refusals

T = TypeVar("T")

MAX_PAGE_SIZE = 100
_MAX_PAGE = 1_000_000
_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
Id = Annotated[str, msgspec.Meta(pattern=_UUID, max_length=36)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Filter = Annotated[str, msgspec.Meta(max_length=255)]
_FIELD = re.compile(r"at `\$\.(\w+)|field `(\w+)`")
_KEY_TYPES = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "sk-ssh-ed25519@openssh.com")


class Order(StrEnum):
    """The orders of lists; names and changes are not simulated."""

    CREATED_AT_ASC = "created_at_asc"
    CREATED_AT_DESC = "created_at_desc"


class Pages(msgspec.Struct, kw_only=True):
    """Page and order of a list."""

    page: Annotated[int, msgspec.Meta(ge=1, le=_MAX_PAGE)] = 1
    page_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_SIZE)] = 20
    order_by: Order = Order.CREATED_AT_ASC


class OwnedList(Pages, kw_only=True):
    """The query of a list of what projects own."""

    project_id: Id | None = None
    organization_id: Id | None = None


class NamedList(OwnedList, kw_only=True):
    """The query of a list that can be restricted to a name."""

    name: Filter | None = None


class AttachmentList(OwnedList, kw_only=True):
    """The query of the list of servers in private networks."""

    server_id: Id | None = None
    private_network_id: Id | None = None


class NewAttachment(msgspec.Struct, kw_only=True):
    """The private network that a server is added to."""

    private_network_id: Id


class ImageList(Pages, kw_only=True):
    """The query of the list of images."""

    server_type: Filter | None = None
    name: Filter | None = None


class NewServer(msgspec.Struct, kw_only=True):
    """An order of a server; what else clients send has no meaning here."""

    type: Name
    name: Name
    project_id: Id | None = None
    os_id: Id | None = None


class ServerUpdate(msgspec.Struct, kw_only=True):
    """A change of a server."""

    name: Name | None = None
    schedule_deletion: bool | None = None
    enable_vpc: bool | None = None


class Reinstallation(msgspec.Struct, kw_only=True):
    """The image of a reinstallation."""

    os_id: Id | None = None


class NewSshKey(msgspec.Struct, kw_only=True):
    """An SSH key of a project."""

    name: Name
    public_key: Annotated[str, msgspec.Meta(min_length=1, max_length=65_000)]
    project_id: Id | None = None


class NewNetwork(msgspec.Struct, kw_only=True):
    """A private network of a project."""

    name: Name
    project_id: Id | None = None
    tags: Annotated[list[Filter], msgspec.Meta(max_length=100)] | None = None


def decode(body: bytes, kind: type[T]) -> T:
    """Return the body of a request as this type; a Refusal names the argument that is wrong."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise refusals.invalid("body", "format", "must be a JSON object") from None


def convert(query: Mapping[str, str], kind: type[T]) -> T:
    """Return a query as this type; a Refusal names the argument that is wrong."""
    try:
        return msgspec.convert(dict(query), kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None


def fingerprint(public_key: str) -> str:
    """Return the fingerprint of a public key in OpenSSH's format; a Refusal if it is not one."""
    kind, _, rest = public_key.strip().partition(" ")
    try:
        blob = base64.b64decode(rest.split()[0], validate=True) if rest.strip() else b""
    except ValueError:
        blob = b""
    encoded_kind = kind.encode()
    is_key = (
        kind in _KEY_TYPES and blob[4:].startswith(encoded_kind) and "\n" not in public_key.strip()
    )
    if not is_key:
        raise refusals.invalid("public_key", "format", "must be a public key in OpenSSH's format")
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"


def _invalid(message: str) -> refusals.Refusal:
    found = _FIELD.search(message)
    argument = (found[1] or found[2]) if found else "body"
    if "missing required" in message:
        return refusals.invalid(argument, "required", "is required")
    is_constraint = "length" in message or "<=" in message or ">=" in message
    return refusals.invalid(argument, "constraint" if is_constraint else "format", message)
