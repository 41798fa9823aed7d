from __future__ import annotations

import pytest

from bramley.api.coordination import Lease, LeaseSpec
from bramley.api.core import Secret
from bramley.api.meta import ObjectMeta
from bramley.api.names import annotations as annotation_names
from bramley.api.names import events, labels, machines, secrets
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachineSpec as Spec
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachineStatus as Status
from bramley.machines import host_leases, release
from bramley.machines.binding import required_host
from bramley.machines.bootstrap_secrets import has_password, is_of
from bramley.machines.host_leases import Holder
from bramley.machines.outcomes import HostOutcome
from bramley.machines.release import recorded_host
from bramley.providers.provider import HostRef
from bramley.providers.selection import HostRequirements

REF = HostRef("fr-par-1", "a-1")
HOLDER = Holder("default", "m1", "u-1")


def a_machine(name: str = "m1", *, server: str = "", **spec: str) -> Machine:
    metadata = ObjectMeta(name=name, namespace="default", uid="u-1")
    provider_id = spec.pop("provider_id", None)
    return Machine(
        metadata=metadata,
        spec=Spec(provider_id=provider_id, **spec),  # type: ignore[arg-type]
        status=Status(server_id=server),
    )


@pytest.mark.parametrize(
    ("machine", "prefix", "expected"),
    [
        (a_machine(), "tuist-pool-", ""),
        (a_machine(), "", events.NO_ADOPT_POOL_PREFIX),
        (a_machine(os="Tahoe"), "p-", ""),
        (a_machine(os="macos-tahoe-26.3"), "p-", ""),
        (a_machine(os="macos-golden-gate-27.0"), "p-", ""),
        (a_machine(os="macos-26.3"), "p-", events.INVALID_OS_PIN),
        (a_machine(os="26"), "p-", events.INVALID_OS_PIN),
        (a_machine(os=""), "p-", events.INVALID_OS_PIN),
        (a_machine("p-1"), "p-", events.ADOPT_FAILED),
        (a_machine("tuist-claim-pending-1"), "p-", events.ADOPT_FAILED),
        (a_machine("m" * 200), "p-", events.ADOPT_FAILED),
        (a_machine(), "/", events.ADOPT_FAILED),
    ],
)
def test_spec_that_names_no_host_is_refused_before_any_call(
    machine: Machine, prefix: str, expected: str
) -> None:
    required = required_host(machine, prefix)

    assert (required.reason if isinstance(required, HostOutcome) else "") == expected
    assert isinstance(required, HostRequirements) == (not expected)


@pytest.mark.parametrize(
    ("server", "provider_id", "expected"),
    [
        ("", None, None),
        ("a-1", None, "nl-ams-1/a-1"),
        ("a-1", "scw-applesilicon://fr-par-1/a-1", "fr-par-1/a-1"),
        ("", "scw-applesilicon://fr-par-1/a-1", "fr-par-1/a-1"),
        ("a-2", "scw-applesilicon://fr-par-1/a-1", "nl-ams-1/a-2"),
        ("../x", None, None),
    ],
)
def test_recorded_host_is_that_of_the_status_or_else_of_the_provider_id(
    server: str, provider_id: str | None, expected: str | None
) -> None:
    machine = a_machine(server=server, zone="nl-ams-1", provider_id=provider_id)  # type: ignore[arg-type]

    ref = recorded_host(machine)

    assert (str(ref) if ref else None) == expected


def a_lease(holder: str | None, zone: str = "fr-par-1", name: str = "mac-host-a-1") -> Lease:
    metadata = ObjectMeta(name=name, annotations={annotation_names.HOST_ZONE: zone})
    return Lease(metadata=metadata, spec=LeaseSpec(holder_identity=holder))


def test_lease_shows_its_host_and_holder() -> None:
    found = host_leases._decoded(a_lease(str(HOLDER)))

    assert found is not None
    assert (found.ref, found.holder) == (REF, HOLDER)


@pytest.mark.parametrize(
    "lease",
    [
        a_lease(None),
        a_lease("someone"),
        a_lease("default//u-1"),
        a_lease(str(HOLDER), zone="../x"),
        a_lease(str(HOLDER), name="mac-host-a.1"),
    ],
)
def test_lease_that_was_changed_by_hand_belongs_to_nobody(lease: Lease) -> None:
    assert host_leases._decoded(lease) is None


def a_secret(uid: str = "", host: str = "", password: bytes = b"x") -> Secret:
    metadata = ObjectMeta(
        labels={labels.MACHINE_UID: uid} if uid else {},
        annotations={annotation_names.HOST_ID: host} if host else {},
    )
    return Secret(metadata=metadata, data={secrets.SUDO_PASSWORD: password})


@pytest.mark.parametrize(
    ("secret", "bound", "not_bound"),
    [
        (None, False, False),
        (a_secret(), True, False),
        (a_secret("u-1", "a-1"), True, True),
        (a_secret("u-2", "a-1"), False, False),
        (a_secret("u-1", "a-2"), False, False),
        (a_secret("", "a-1"), False, False),
    ],
)
def test_secret_of_another_machine_or_host_is_not_used(
    secret: Secret | None, bound: bool, not_bound: bool
) -> None:
    assert is_of(secret, HOLDER, REF, is_bound=True) == bound
    assert is_of(secret, HOLDER, REF, is_bound=False) == not_bound


def test_placeholder_is_no_password() -> None:
    assert has_password(a_secret())
    assert not has_password(a_secret(password=machines.SEALED.encode()))
    assert not has_password(a_secret(password=b""))


@pytest.mark.parametrize(
    ("server", "provider_id", "expected"),
    [
        ("", None, False),
        ("a-1", None, False),
        ("a-2", None, True),
        ("", "scw-applesilicon://nl-ams-1/a-1", False),
        ("a-2", "scw-applesilicon://nl-ams-1/a-1", False),
        ("a-2", "scw-applesilicon://nl-ams-1/a-2", True),
    ],
)
def test_lease_is_not_needed_only_if_the_machine_names_another_host(
    server: str, provider_id: str | None, expected: bool
) -> None:
    machine = a_machine(server=server, provider_id=provider_id)  # type: ignore[arg-type]
    lease = host_leases._decoded(a_lease(str(HOLDER)))

    assert lease is not None
    assert release._has_another_host(machine, lease) is expected
