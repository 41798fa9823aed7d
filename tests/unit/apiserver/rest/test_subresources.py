"""The registries of subresources and of kinds that are never stored, and the finalize subresource of namespaces."""

from __future__ import annotations

import pytest

from bramley.apiserver.kinds import builtin_kinds
from bramley.apiserver.rest import routes
from tests.unit.apiserver.world import World


def test_every_registered_name_belongs_to_a_kind_that_is_served() -> None:
    served = {each.qualified for each in builtin_kinds.builtin()}

    extra = {qualified for qualified, _ in routes.SUBRESOURCES}

    assert extra | set(routes.VIRTUAL) <= served


def test_every_virtual_kind_has_a_handler_and_can_only_be_created() -> None:
    virtual = {each.qualified: each.verbs for each in builtin_kinds.builtin() if each.is_virtual}

    assert virtual == dict.fromkeys(routes.VIRTUAL, ("create",))


def test_registered_methods_are_http_methods() -> None:
    for each in routes.SUBRESOURCES.values():
        assert each.methods.keys() <= routes.VERBS.keys()
        assert each.verbs == sorted(each.verbs)


async def _held_namespace(world: World) -> None:
    meta = {"name": "held", "finalizers": ["example.com/hold"]}
    await world.create("/api/v1/namespaces", {"metadata": meta})


async def test_namespace_finalizers_change_only_through_finalize(world: World) -> None:
    await _held_namespace(world)
    path = "/api/v1/namespaces/held"
    body = {"metadata": {"name": "held"}, "spec": {"finalizers": ["example.com/own"]}}

    updated = await world.request("PUT", path, body)
    finalized = await world.request("PUT", f"{path}/finalize", body)

    assert updated.json["spec"] == {"finalizers": ["kubernetes"]}
    assert finalized.json["spec"] == {"finalizers": ["example.com/own"]}


async def test_finalize_takes_no_patch_and_needs_a_namespace(world: World) -> None:
    body = {"metadata": {"name": "nowhere"}}

    missing = await world.request("PUT", "/api/v1/namespaces/nowhere/finalize", body)
    patched = await world.merge("/api/v1/namespaces/default/finalize", {"spec": {}})

    assert (missing.code, patched.code) == (404, 405)


@pytest.mark.parametrize("what", ["exec?command=true", "attach", "portforward"])
async def test_exec_attach_and_port_forward_are_not_implemented(world: World, what: str) -> None:
    address = {"type": "InternalIP", "address": "10.0.0.1"}
    node = {"metadata": {"name": "mac-1"}, "status": {"addresses": [address]}}
    await world.create("/api/v1/nodes", node)
    spec = {"nodeName": "mac-1", "containers": [{"name": "c", "image": "i"}]}
    pods = "/api/v1/namespaces/default/pods"
    await world.create(pods, {"metadata": {"name": "a"}, "spec": spec})

    refused = await world.request("POST", f"{pods}/a/{what}")

    assert refused.code == 500
    assert refused.message.endswith("does not pass exec, attach and port-forward on to agents yet")
