"""Creating and reading objects."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from bramley.api.coordination import Lease, LeaseSpec
from bramley.api.core import ConfigMap, Namespace, Node, Secret
from bramley.api.meta import ObjectMeta, micro_time
from bramley.base import errors
from tests.contract.kube_client.conftest import REAL
from tests.contract.kube_client.kinds import Widget, WidgetSpec
from tests.contract.kube_client.targets import Target, World


async def test_a_created_object_can_be_read(world: World) -> None:
    place = ObjectMeta(name="a", labels={"x": "y"}, annotations={"note": "ü\n"})

    made = await world.kube.create(
        ConfigMap(metadata=place, data={"key": "välue"}, binary_data={"b": b"\x00\xff"}),
        namespace=world.namespace,
    )

    read = await world.kube.get(ConfigMap, "a", namespace=world.namespace)
    assert read == made
    assert read.data == {"key": "välue"}
    assert read.binary_data == {"b": b"\x00\xff"}
    assert read.metadata.annotations == {"note": "ü\n"}


async def test_server_sets_uid_version_and_creation_time(world: World) -> None:
    made = await world.config("a")
    other = await world.config("b")

    assert made.metadata.uid != other.metadata.uid
    assert made.metadata.uid
    assert int(other.metadata.resource_version) > int(made.metadata.resource_version)
    assert made.metadata.namespace == world.namespace
    created = made.metadata.creation_timestamp
    assert created
    assert abs(datetime.now(UTC) - created) < timedelta(minutes=10)


async def test_name_can_be_created_only_once(world: World) -> None:
    await world.config("a")

    with pytest.raises(errors.AlreadyExists, match='configmaps "a" already exists'):
        await world.config("a")


async def test_the_server_completes_a_generated_name(world: World) -> None:
    place = ObjectMeta(generate_name="job-", namespace=world.namespace)

    made = [await world.kube.create(ConfigMap(metadata=place)) for _ in range(3)]

    names = {obj.name for obj in made}
    assert len(names) == 3
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


async def test_a_missing_object_is_not_found(world: World) -> None:
    with pytest.raises(errors.NotFound, match='configmaps "none" not found'):
        await world.kube.get(ConfigMap, "none", namespace=world.namespace)
    with pytest.raises(errors.NotFound):
        await world.kube.merge_patch(ConfigMap, "none", {}, namespace=world.namespace)
    with pytest.raises(errors.NotFound):
        await world.kube.delete(ConfigMap, "none", namespace=world.namespace)
    with pytest.raises(errors.NotFound):
        await world.kube.get(Node, "none")


async def test_a_namespace_must_exist(world: World) -> None:
    with pytest.raises(errors.NotFound, match='namespaces "nowhere" not found'):
        await world.kube.create(ConfigMap(metadata=ObjectMeta(name="a")), namespace="nowhere")


async def test_a_bad_name_is_invalid_with_its_field(world: World) -> None:
    with pytest.raises(errors.InvalidSpec) as caught:
        await world.config("Not_A_Name")

    [cause] = caught.value.causes
    assert (cause.field, cause.reason) == ("metadata.name", "FieldValueInvalid")


async def test_every_broken_rule_of_a_definition_is_a_cause(world: World) -> None:
    with pytest.raises(errors.InvalidSpec) as caught:
        await world.widget("a", size=1000, mode="lazy")

    found = {(cause.field, cause.reason) for cause in caught.value.causes}
    assert found == {("spec.size", "FieldValueInvalid"), ("spec.mode", "FieldValueNotSupported")}


async def test_a_missing_field_is_named(world: World) -> None:
    body = {"apiVersion": "contract.bramley.dev/v1", "kind": "Widget", "spec": {}}

    with pytest.raises(errors.InvalidSpec) as caught:
        await world.kube.create_wire(
            Widget.resource, {**body, "metadata": {"name": "a"}}, namespace=world.namespace
        )

    [cause] = caught.value.causes
    assert (cause.field, cause.reason) == ("spec.size", "FieldValueRequired")


async def test_defaults_are_filled_in_and_unknown_fields_dropped(world: World) -> None:
    spec = {"size": 3, "unknown": "x", "extra": {"kept": "y"}}
    body = {"apiVersion": "contract.bramley.dev/v1", "kind": "Widget", "spec": spec}

    made = await world.kube.create_wire(
        Widget.resource, {**body, "metadata": {"name": "a"}}, namespace=world.namespace
    )

    assert made["spec"] == {"size": 3, "mode": "slow", "extra": {"kept": "y"}}
    assert made["metadata"]["generation"] == 1


async def test_a_body_of_another_kind_is_a_bad_request(world: World) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}

    with pytest.raises(errors.BadRequest):
        await world.kube.create_wire(ConfigMap.resource, body, namespace=world.namespace)


async def test_secrets_hold_bytes(world: World) -> None:
    place = ObjectMeta(name="a", namespace=world.namespace)
    secret = Secret(metadata=place, data={"key": b"\x00\x01"}, string_data={"text": "words"})

    await world.kube.create(secret)

    read = await world.kube.get(Secret, "a", namespace=world.namespace)
    assert read.data == {"key": b"\x00\x01", "text": b"words"}


async def test_leases_keep_their_microseconds(world: World) -> None:
    when = micro_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    place = ObjectMeta(name="a", namespace=world.namespace)
    spec = LeaseSpec(holder_identity="me", lease_duration_seconds=15, renew_time=when)

    await world.kube.create(Lease(metadata=place, spec=spec))

    read = await world.kube.get(Lease, "a", namespace=world.namespace)
    assert read.spec == spec


async def test_big_objects_round_trip(world: World) -> None:
    data = {f"key-{number}": "x" * 10_000 for number in range(90)}
    place = ObjectMeta(name="big", namespace=world.namespace)

    await world.kube.create(ConfigMap(metadata=place, data=data))

    read = await world.kube.get(ConfigMap, "big", namespace=world.namespace)
    assert read.data == data
    assert len((await world.kube.list(ConfigMap, namespace=world.namespace)).items) >= 1


async def test_objects_that_are_too_big_are_refused(world: World) -> None:
    place = ObjectMeta(name="big", namespace=world.namespace)

    with pytest.raises(errors.Refused):
        await world.kube.create(ConfigMap(metadata=place, data={"x": "x" * 1_200_000}))
    with pytest.raises(errors.Refused):
        await world.kube.create(ConfigMap(metadata=place, data={"x": "x" * 4_000_000}))

    with pytest.raises(errors.NotFound):
        await world.kube.get(ConfigMap, "big", namespace=world.namespace)


async def test_an_undecodable_object_is_reported_and_hides_no_other(world: World) -> None:
    await world.widget("good")
    spec = {"size": 1, "extra": {"a": {"not": "a text"}}}
    body = {"apiVersion": "contract.bramley.dev/v1", "kind": "Widget", "spec": spec}
    await world.kube.create_wire(
        Widget.resource, {**body, "metadata": {"name": "odd"}}, namespace=world.namespace
    )

    with pytest.raises(errors.InvalidSpec, match="does not fit its type"):
        await world.kube.get(Widget, "odd", namespace=world.namespace)
    found = await world.kube.list(Widget, namespace=world.namespace)

    assert [item.name for item in found.items] == ["good"]
    assert [misfit.metadata.name for misfit in found.undecodable] == ["odd"]


async def test_a_read_may_request_any_version(world: World) -> None:
    made = await world.widget("a")

    # Any version may be an old one, so the cache is first made to catch up.
    for version in (made.metadata.resource_version, "0"):
        read = await world.kube.get(
            Widget, "a", namespace=world.namespace, resource_version=version
        )
        assert read.uid == made.uid


async def test_namespaces_are_objects_without_a_namespace(world: World) -> None:
    found = await world.kube.get(Namespace, world.namespace)

    assert found.namespace is None
    assert {"default", "kube-system"} <= {n.name for n in (await world.kube.list(Namespace)).items}


async def test_concurrent_creates_of_one_name_make_one_object(world: World) -> None:
    place = ObjectMeta(name="one", namespace=world.namespace)
    obj = Widget(metadata=place, spec=WidgetSpec(size=1))

    results = await asyncio.gather(
        *(world.kube.create(obj) for _ in range(16)), return_exceptions=True
    )

    assert sum(isinstance(result, Widget) for result in results) == 1
    assert sum(isinstance(result, errors.AlreadyExists) for result in results) == 15


@pytest.mark.parametrize("target", ["over-http", REAL], indirect=True)
async def test_timed_out_call_leaves_the_client_usable(world: World) -> None:
    """In process an answer takes no time, so only servers behind sockets are tested."""
    hurried = world.kube.within(timedelta(microseconds=1))

    with pytest.raises(errors.TimedOut):
        await hurried.list(ConfigMap)
    with pytest.raises(errors.TimedOut):
        await hurried.create(ConfigMap(metadata=ObjectMeta(name="late")), namespace="default")

    assert (await world.kube.get(Namespace, "default")).name == "default"


async def test_an_unknown_token_is_unauthorized(target: Target) -> None:
    async with target.world() as world, world.server.client(token="wrong") as stranger:
        with pytest.raises(errors.Unauthorized):
            await stranger.get(Namespace, "default")
        with pytest.raises(errors.Unauthorized):
            await stranger.create(ConfigMap(metadata=ObjectMeta(name="a")), namespace="default")
        with pytest.raises(errors.Unauthorized):
            async with stranger.watch(Namespace):
                pass


async def test_a_user_without_roles_is_forbidden(world: World) -> None:
    with pytest.raises(errors.Forbidden):
        await world.kube.delete(Namespace, "default")
