"""Scaleway's calls that the simulated Scaleway answers, as a table of methods, paths and handlers.

No handler waits, so a call can be answered without an event loop, too.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bramley.sim.scaleway import catalog, refusals
from bramley.sim.scaleway.access import ApiKey
from bramley.sim.scaleway.arguments import (
    AttachmentList,
    ImageList,
    NamedList,
    NewAttachment,
    NewNetwork,
    NewServer,
    NewSshKey,
    Order,
    OwnedList,
    Pages,
    Reinstallation,
    ServerUpdate,
    convert,
    decode,
    fingerprint,
)
from bramley.sim.scaleway.catalog import Os
from bramley.sim.scaleway.records import PrivateNetwork, Server, SshKey
from bramley.sim.scaleway.scaleway import SimulatedScaleway


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its key, and the parameters of its path."""

    key: ApiKey
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and a body; None is an empty one."""

    status: int
    body: Any = None


Handler = Callable[[SimulatedScaleway, Call], Answer]


def _list_servers(scaleway: SimulatedScaleway, call: Call) -> Answer:
    requested = convert(call.query, OwnedList)
    visible = _visible(call, "server", requested, scaleway.servers.values())
    found = [each for each in visible if each.zone == call.path["zone"]]
    stale = scaleway.settings.list_shows_old_name
    return _page("servers", requested, found, lambda each: scaleway.shown(each, stale=stale))


def _create_server(scaleway: SimulatedScaleway, call: Call) -> Answer:
    requested = decode(call.body, NewServer)
    call.key.require(requested.project_id, "create", "server")
    if requested.type not in catalog.TYPES:
        raise refusals.invalid("type", "constraint", "no such type of server")
    server = scaleway.create_server(
        requested.name,
        type=requested.type,
        zone=call.path["zone"],
        project_id=requested.project_id or scaleway.settings.project_id,
        image=_image(requested.os_id, requested.type),
    )
    return Answer(200, scaleway.shown(server))


def _get_server(scaleway: SimulatedScaleway, call: Call) -> Answer:
    server = _server(scaleway, call, "get")
    return Answer(200, scaleway.shown(server, stale=scaleway.settings.get_shows_old_name))


def _update_server(scaleway: SimulatedScaleway, call: Call) -> Answer:
    server = _server(scaleway, call, "update")
    requested = decode(call.body, ServerUpdate)
    if requested.name is not None:
        scaleway.rename(server, requested.name)
    if requested.schedule_deletion is not None:
        scaleway.schedule_deletion(server, is_scheduled=requested.schedule_deletion)
    if requested.enable_vpc is not None:
        scaleway.enable_vpc(server, is_enabled=requested.enable_vpc)
    return Answer(200, scaleway.shown(server))


def _delete_server(scaleway: SimulatedScaleway, call: Call) -> Answer:
    scaleway.delete_server(_server(scaleway, call, "delete"))
    return Answer(204)


def _reboot_server(scaleway: SimulatedScaleway, call: Call) -> Answer:
    server = _server(scaleway, call, "reboot")
    scaleway.reboot(server)
    return Answer(200, scaleway.shown(server))


def _reinstall_server(scaleway: SimulatedScaleway, call: Call) -> Answer:
    server = _server(scaleway, call, "reinstall")
    requested = decode(call.body, Reinstallation)
    scaleway.reinstall(server, _image(requested.os_id, server.type))
    return Answer(200, scaleway.shown(server))


def _list_types(scaleway: SimulatedScaleway, call: Call) -> Answer:
    del call
    sold_out = scaleway.settings.out_of_stock
    types = [each.json(has_stock=each.name not in sold_out) for each in catalog.TYPES.values()]
    return Answer(200, {"server_types": types})


def _list_images(scaleway: SimulatedScaleway, call: Call) -> Answer:
    del scaleway
    requested = convert(call.query, ImageList)
    found = [
        each
        for each in catalog.IMAGES
        if requested.server_type in (None, *each.types) and (requested.name or "") in each.name
    ]
    return _page("os", requested, found, Os.json)


def _list_ssh_keys(scaleway: SimulatedScaleway, call: Call) -> Answer:
    requested = convert(call.query, NamedList)
    call.key.require(requested.project_id, "list", "ssh_key")
    visible = _visible(call, "ssh_key", requested, scaleway.ssh_keys.values())
    found = [each for each in visible if requested.name in (None, each.name)]
    return _page("ssh_keys", requested, found, SshKey.json)


def _create_ssh_key(scaleway: SimulatedScaleway, call: Call) -> Answer:
    requested = decode(call.body, NewSshKey)
    call.key.require(requested.project_id, "create", "ssh_key")
    key = SshKey(
        id=scaleway.new_id(),
        name=requested.name,
        public_key=requested.public_key,
        fingerprint=fingerprint(requested.public_key),
        project_id=requested.project_id or scaleway.settings.project_id,
        organization_id=scaleway.settings.organization_id,
        created_at=scaleway.clock.now(),
    )
    scaleway.ssh_keys[key.id] = key
    scaleway.changed()
    return Answer(200, key.json())


def _get_ssh_key(scaleway: SimulatedScaleway, call: Call) -> Answer:
    return Answer(200, _ssh_key(scaleway, call, "get").json())


def _delete_ssh_key(scaleway: SimulatedScaleway, call: Call) -> Answer:
    del scaleway.ssh_keys[_ssh_key(scaleway, call, "delete").id]
    scaleway.changed()
    return Answer(204)


def _list_networks(scaleway: SimulatedScaleway, call: Call) -> Answer:
    requested = convert(call.query, NamedList)
    visible = _visible(call, "private_network", requested, scaleway.private_networks.values())
    found = [
        each
        for each in visible
        if each.region == call.path["region"] and (requested.name or "") in each.name
    ]
    return _page("private_networks", requested, found, PrivateNetwork.json)


def _create_network(scaleway: SimulatedScaleway, call: Call) -> Answer:
    requested = decode(call.body, NewNetwork)
    call.key.require(requested.project_id, "create", "private_network")
    network = PrivateNetwork(
        id=scaleway.new_id(),
        name=requested.name,
        region=call.path["region"],
        tags=tuple(requested.tags or ()),
        project_id=requested.project_id or scaleway.settings.project_id,
        organization_id=scaleway.settings.organization_id,
        created_at=scaleway.clock.now(),
    )
    scaleway.private_networks[network.id] = network
    scaleway.changed()
    return Answer(200, network.json())


def _list_attachments(scaleway: SimulatedScaleway, call: Call) -> Answer:
    requested = convert(call.query, AttachmentList)
    visible = _visible(call, "private_network", requested, scaleway.attachments.values())
    found = [
        each
        for each in visible
        if (server := scaleway.servers.get(each.server_id)) is not None
        and server.zone == call.path["zone"]
        and requested.server_id in (None, each.server_id)
        and requested.private_network_id in (None, each.private_network_id)
    ]
    now = scaleway.clock.now()
    return _page("server_private_networks", requested, found, lambda each: each.json(now))


def _attach(scaleway: SimulatedScaleway, call: Call) -> Answer:
    server = _server(scaleway, call, "update")
    id = decode(call.body, NewAttachment).private_network_id
    network = scaleway.private_networks.get(id)
    if network is None or network.region != server.zone.rpartition("-")[0]:
        raise refusals.not_found("private_network", id)
    call.key.require(network.project_id, "get", "private_network")
    return Answer(200, scaleway.attach(server, network).json(scaleway.clock.now()))


def _visible(call: Call, resource: str, requested: OwnedList, every: Iterable[Any]) -> list[Any]:
    """Return the resources of the requested project, or of all projects of the key; a Refusal if that is none of its projects."""
    if requested.project_id is not None:
        call.key.require(requested.project_id, "list", resource)
    return [
        each
        for each in every
        if call.key.may_use(each.project_id)
        and requested.project_id in (None, each.project_id)
        and requested.organization_id in (None, each.organization_id)
    ]


def _page(
    name: str, requested: Pages, found: Sequence[Any], shown: Callable[[Any], dict[str, Any]]
) -> Answer:
    ordered = found[::-1] if requested.order_by is Order.CREATED_AT_DESC else found
    first = (requested.page - 1) * requested.page_size
    chosen = ordered[first : first + requested.page_size]
    return Answer(200, {"total_count": len(found), name: [shown(each) for each in chosen]})


def _server(scaleway: SimulatedScaleway, call: Call, action: str) -> Server:
    id = _id(call, "server_id")
    server = scaleway.servers.get(id)
    if server is None or server.zone != call.path["zone"]:
        raise refusals.not_found("server", id)
    call.key.require(server.project_id, action, "server")
    return server


def _ssh_key(scaleway: SimulatedScaleway, call: Call, action: str) -> SshKey:
    id = _id(call, "ssh_key_id")
    key = scaleway.ssh_keys.get(id)
    if key is None:
        raise refusals.not_found("ssh_key", id)
    call.key.require(key.project_id, action, "ssh_key")
    return key


def _image(id: str | None, type: str) -> Os | None:
    """Return the image with an id; a Refusal if it does not run on this type of server."""
    image = next((each for each in catalog.IMAGES if each.id == id), None)
    if id is not None and image is None:
        raise refusals.not_found("os", id)
    if image is not None and type not in image.types:
        raise refusals.invalid("os_id", "constraint", f"{image.name} does not run on {type}")
    return image


def _id(call: Call, name: str) -> str:
    try:
        return str(uuid.UUID(call.path[name]))
    except ValueError:
        raise refusals.invalid(name, "format", "must be a UUID") from None


_ZONE = "/apple-silicon/v1alpha1/zones/{zone}"
_SERVER = f"{_ZONE}/servers/{{server_id}}"
_SSH_KEYS = "/iam/v1alpha1/ssh-keys"
_NETWORKS = "/vpc/v2/regions/{region}/private-networks"
CALLS: tuple[tuple[str, str, Handler], ...] = (
    ("GET", f"{_ZONE}/servers", _list_servers),
    ("POST", f"{_ZONE}/servers", _create_server),
    ("GET", _SERVER, _get_server),
    ("PATCH", _SERVER, _update_server),
    ("DELETE", _SERVER, _delete_server),
    ("POST", f"{_SERVER}/reboot", _reboot_server),
    ("POST", f"{_SERVER}/reinstall", _reinstall_server),
    ("POST", f"{_SERVER}/private-networks", _attach),
    ("GET", f"{_ZONE}/server-private-networks", _list_attachments),
    ("GET", f"{_ZONE}/server-types", _list_types),
    ("GET", f"{_ZONE}/os", _list_images),
    ("GET", _SSH_KEYS, _list_ssh_keys),
    ("POST", _SSH_KEYS, _create_ssh_key),
    ("GET", f"{_SSH_KEYS}/{{ssh_key_id}}", _get_ssh_key),
    ("DELETE", f"{_SSH_KEYS}/{{ssh_key_id}}", _delete_ssh_key),
    ("GET", _NETWORKS, _list_networks),
    ("POST", _NETWORKS, _create_network),
)
_REGIONS = {zone.rpartition("-")[0] for zone in catalog.ZONES}
_VALUES = {"zone": "|".join(catalog.ZONES), "region": "|".join(sorted(_REGIONS))}


def _pattern(template: str) -> re.Pattern[str]:
    def group(found: re.Match[str]) -> str:
        return f"(?P<{found[1]}>{_VALUES.get(found[1], '[^/]{1,255}')})"

    return re.compile(re.sub(r"\{(\w+)\}", group, template))


_PATTERNS = tuple((*each, _pattern(each[1])) for each in CALLS)


def find(method: str, path: str) -> tuple[str, Handler, Mapping[str, str]]:
    """Return the name of a call, its handler and the parameters of its path; a Refusal if it is not simulated."""
    for own_method, template, handler, pattern in _PATTERNS:
        found = pattern.fullmatch(path)
        if found is not None and own_method == method:
            return f"{method} {template}", handler, found.groupdict()
    raise refusals.unknown_service()
