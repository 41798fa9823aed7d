from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.autoscaling import Scale, ScaleSpec
from bramley.api.coordination import Lease, LeaseSpec
from bramley.api.core import ConfigMap, Node, Pod
from bramley.api.meta import MicroTime, ObjectMeta, Resource, micro_time, moment, to_wire
from bramley.api.runner_pool import RunnerPool

NOON = datetime(2026, 6, 19, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("when", "text"),
    [
        (NOON, "2026-06-19T12:00:00.000000Z"),
        (NOON + timedelta(microseconds=1), "2026-06-19T12:00:00.000001Z"),
        (NOON + timedelta(milliseconds=250), "2026-06-19T12:00:00.250000Z"),
        (NOON.astimezone(timezone(timedelta(hours=2))), "2026-06-19T12:00:00.000000Z"),
    ],
)
def test_micro_time_has_exactly_six_fraction_digits_in_utc(when: datetime, text: str) -> None:
    assert micro_time(when) == text


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_micro_time_round_trips(when: datetime) -> None:
    assert moment(micro_time(when)) == when


def test_micro_time_without_a_time_zone_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        moment(MicroTime("2026-06-19T12:00:00.000000"))


def test_lease_keeps_its_fraction_digits_through_decode_and_encode() -> None:
    raw = b'{"metadata":{"name":"x"},"spec":{"renewTime":"2026-06-19T12:00:00.000000Z"}}'

    lease = msgspec.json.decode(raw, type=Lease)

    assert msgspec.json.encode(lease) == raw
    assert lease.spec.renew_time is not None
    assert moment(lease.spec.renew_time) == NOON


def test_to_wire_adds_what_lists_leave_out_and_drops_defaults() -> None:
    lease = Lease(
        metadata=ObjectMeta(name="leader", namespace="default"),
        spec=LeaseSpec(holder_identity="me", acquire_time=micro_time(NOON)),
    )

    assert to_wire(lease) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader", "namespace": "default"},
        "spec": {"holderIdentity": "me", "acquireTime": "2026-06-19T12:00:00.000000Z"},
    }


def test_to_wire_of_a_core_kind_has_a_bare_version() -> None:
    settings = ConfigMap(metadata=ObjectMeta(name="a"), data={"k": "v"}, binary_data={"b": b"\0"})

    assert to_wire(settings) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"k": "v"},
        "binaryData": {"b": "AA=="},
    }


def test_to_wire_round_trips() -> None:
    scale = Scale(metadata=ObjectMeta(name="a"), spec=ScaleSpec(replicas=3))

    assert msgspec.convert(to_wire(scale), Scale) == scale


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (Pod.resource, "/api/v1/namespaces/ns/pods/x/status"),
        (Node.resource, "/api/v1/nodes/x/status"),
        (RunnerPool.resource, "/apis/tuist.dev/v1alpha1/namespaces/ns/runnerpools/x/status"),
    ],
)
def test_paths_follow_group_scope_and_name(resource: Resource, path: str) -> None:
    assert resource.path("ns", "x", "status") == path


def test_object_with_a_deletion_timestamp_is_being_deleted() -> None:
    going = Pod(metadata=ObjectMeta(name="a", namespace="n", uid="u", deletion_timestamp=NOON))

    assert (going.name, going.namespace, going.uid, going.deleting) == ("a", "n", "u", True)
    assert not Pod().deleting
