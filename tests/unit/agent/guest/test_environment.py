"""Variables of a guest: their sources, their precedence, and the error when one cannot be resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from bramley.agent.guest import environment
from bramley.agent.guest.environment import NodeFacts, Unresolved
from bramley.api.core import ConfigMap, Secret
from bramley.api.meta import K, ObjectMeta
from bramley.base import errors
from tests.unit.agent.guest.pods import a_pod

Json = dict[str, Any]
PLACE = NodeFacts(node="mac", host="10.0.0.7", allocatable={"cpu": "8", "memory": "16384Mi"})


@dataclass
class Objects:
    """A server with these Secrets and ConfigMaps, which records its requests."""

    secrets: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    forbidden: frozenset[str] = frozenset()
    requests: list[str] = field(default_factory=list)

    async def get(self, kind: type[K], name: str, *, namespace: str | None = None) -> K:
        self.requests.append(f"{kind.resource.plural} {namespace}/{name}")
        if name in self.forbidden:
            raise errors.Forbidden("not yours")
        held = self.secrets if kind is Secret else self.configs
        if name not in held:
            raise errors.NotFound(name)
        found = (Secret if kind is Secret else ConfigMap)(
            metadata=ObjectMeta(name=name),
            data=dict(held[name]),  # type: ignore[arg-type]
        )
        assert isinstance(found, kind)
        return found


def from_field(path: str) -> Json:
    return {"fieldRef": {"fieldPath": path}}


def from_resource(resource: str, **more: str) -> Json:
    return {"resourceFieldRef": {"resource": resource, **more}}


def from_secret(name: str, key: str, **more: bool) -> Json:
    return {"secretKeyRef": {"name": name, "key": key, **more}}


def from_config(name: str, key: str, **more: bool) -> Json:
    return {"configMapKeyRef": {"name": name, "key": key, **more}}


async def value_of(
    source: Json, objects: Objects | None = None, *, status: Json | None = None, **container: Any
) -> str | None:
    pod = a_pod(status=status, env=[{"name": "A", "valueFrom": source}], **container)
    return (await environment.resolve(pod, objects or Objects(), PLACE)).get("A")


async def test_literal_values() -> None:
    pod = a_pod(env=[{"name": "A", "value": "1"}, {"name": "B"}])

    assert await environment.resolve(pod, Objects(), PLACE) == {"A": "1", "B": ""}


async def test_values_come_from_secrets_and_config_maps() -> None:
    objects = Objects({"s": {"k": b"hidden"}}, {"c": {"k": "seen"}})

    assert await value_of(from_secret("s", "k"), objects) == "hidden"
    assert await value_of(from_config("c", "k"), objects) == "seen"
    assert objects.requests == ["secrets ns/s", "configmaps ns/c"]


async def test_object_is_read_once_for_all_variables() -> None:
    objects = Objects({"s": {"a": b"1", "b": b"2"}})
    env = [{"name": name, "valueFrom": from_secret("s", name)} for name in ("a", "b")]

    found = await environment.resolve(
        a_pod(env=env, envFrom=[{"secretRef": {"name": "s"}}]), objects, PLACE
    )

    assert found == {"a": "1", "b": "2"}
    assert objects.requests == ["secrets ns/s"]


async def test_env_wins_over_env_from() -> None:
    objects = Objects(
        {"s": {"A": b"secret", "B": b"secret"}}, {"c": {"B": "config", "C": "config"}}
    )
    sources = [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}]
    pod = a_pod(envFrom=sources, env=[{"name": "A", "value": "named"}])

    found = await environment.resolve(pod, objects, PLACE)

    assert found == {"A": "named", "B": "config", "C": "config"}


async def test_prefix_is_put_before_each_key() -> None:
    pod = a_pod(envFrom=[{"prefix": "MY_", "configMapRef": {"name": "c"}}])

    found = await environment.resolve(pod, Objects(configs={"c": {"A": "1", "2": "3"}}), PLACE)

    assert found == {"MY_A": "1", "MY_2": "3"}


async def test_key_that_is_no_valid_name_is_left_out() -> None:
    pod = a_pod(envFrom=[{"configMapRef": {"name": "c"}}])

    found = await environment.resolve(pod, Objects(configs={"c": {"2": "3", "a.b": "4"}}), PLACE)

    assert found == {"a.b": "4"}


@pytest.mark.parametrize(
    "source", [from_secret("s", "k", optional=True), from_config("c", "k", optional=True)]
)
@pytest.mark.parametrize("objects", [Objects(), Objects({"s": {}}, {"c": {}})])
async def test_optional_key_may_be_missing(source: Json, objects: Objects) -> None:
    assert await value_of(source, objects) is None


async def test_optional_object_may_be_missing() -> None:
    pod = a_pod(envFrom=[{"secretRef": {"name": "s", "optional": True}}])

    assert await environment.resolve(pod, Objects(), PLACE) == {}


THERE = Objects(
    {"s": {"other": b""}, "binary": {"k": b"\xff\xfe"}, "zero": {"k": b"a\0b"}}, {"c": {}}
)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (from_secret("gone", "k"), "env A: secret gone not found"),
        (from_secret("s", "k"), "env A: secret s missing key k"),
        (from_config("gone", "k"), "env A: configmap gone not found"),
        (from_config("c", "k"), "env A: configmap c missing key k"),
        (from_secret("binary", "k"), "env A: secret binary key k is not valid UTF-8"),
        (from_secret("zero", "k"), "env A: secret zero key k contains a NUL byte"),
        (from_field("spec.foo"), "env A: field spec.foo is not supported"),
        (from_field("metadata.labels"), "env A: field metadata.labels is not supported"),
        (from_resource("cpu"), "env A: resource cpu is not supported"),
        (from_resource("limits.cpu", containerName="x"), "env A: there is no container x"),
        ({"fileKeyRef": {"path": "p"}}, "env A: the source of its value is not supported"),
    ],
)  # fmt: skip
async def test_error_names_the_missing_key(source: Json, message: str) -> None:
    with pytest.raises(Unresolved) as caught:
        await value_of(source, THERE)

    assert str(caught.value) == message


@pytest.mark.parametrize("field", ["secretRef", "configMapRef"])
async def test_error_names_the_missing_object(field: str) -> None:
    word = {"secretRef": "secret", "configMapRef": "configmap"}[field]

    with pytest.raises(Unresolved, match=f"^envFrom {word} ns/gone: not found$"):
        await environment.resolve(a_pod(envFrom=[{field: {"name": "gone"}}]), Objects(), PLACE)


async def test_forbidden_object_is_retried_like_a_missing_one() -> None:
    with pytest.raises(Unresolved, match=r"^env A: secret s: the agent is not allowed to read it$"):
        await value_of(from_secret("s", "k"), Objects(forbidden=frozenset({"s"})))


async def test_name_that_no_env_file_can_hold_is_refused() -> None:
    with pytest.raises(Unresolved, match="name is not valid"):
        await environment.resolve(a_pod(env=[{"name": "A=B\nC", "value": "1"}]), Objects(), PLACE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "build"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u-1"),
        ("spec.nodeName", "mac"),
        ("spec.serviceAccountName", "runner"),
        ("status.hostIP", "10.0.0.7"),
        ("status.hostIPs", "10.0.0.7"),
        ("metadata.labels['tuist.dev/runner-pool']", "large"),
        ("metadata.annotations['example.com/a']", "b"),
        ("metadata.labels['none']", ""),
    ],
)
async def test_fields_of_the_pod(path: str, value: str) -> None:
    assert await value_of(from_field(path)) == value


@pytest.mark.parametrize("path", ["status.podIP", "status.podIPs"])
async def test_address_is_left_out_until_it_is_known(path: str) -> None:
    known = {"podIP": "192.168.64.9", "podIPs": [{"ip": "192.168.64.9"}]}

    assert await value_of(from_field(path)) is None
    assert await value_of(from_field(path), status=known) == "192.168.64.9"


def test_only_pods_that_use_the_address_wait_for_it() -> None:
    asking = a_pod(env=[{"name": "A", "valueFrom": from_field("status.podIP")}])

    assert environment.awaits_address(asking)
    assert not environment.awaits_address(a_pod(env=[{"name": "A", "value": "status.podIP"}]))
    assert not environment.awaits_address(
        a_pod(env=[{"name": "A", "valueFrom": from_field("status.hostIP")}])
    )


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (from_resource("limits.cpu"), "4"),
        (from_resource("requests.cpu"), "2"),
        (from_resource("requests.cpu", divisor="1m"), "1500"),
        (from_resource("limits.memory", divisor="1Mi"), "8192"),
        (from_resource("limits.memory"), "8589934592"),
        (from_resource("limits.memory", divisor="0"), "8589934592"),
        (from_resource("requests.memory"), "0"),
        (from_resource("limits.cpu", containerName="vm"), "4"),
    ],
)
async def test_amounts_of_resources_are_rounded_up_to_units(source: Json, value: str) -> None:
    resources = {"limits": {"cpu": "4", "memory": "8Gi"}, "requests": {"cpu": "1500m"}}

    assert await value_of(source, resources=resources) == value


async def test_without_a_limit_the_value_is_the_nodes_allocatable() -> None:
    assert await value_of(from_resource("limits.cpu")) == "8"
    assert await value_of(from_resource("limits.memory", divisor="1Gi")) == "16"
    assert await value_of(from_resource("limits.ephemeral-storage")) == "0"
