"""Every default and every bound of our kinds, as existing fleets rely on them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bramley.api import schema
from bramley.api.meta import Object, to_wire
from bramley.api.runner_pool import RunnerPool
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine, os_family
from bramley.api.tuist_cluster import TuistCluster
from tests.unit.api.oracle import accepts, completed
from tests.unit.api.samples import LEAST, LIVE, SERVER, changed

Pool, Machine, Cluster = RunnerPool, ScalewayAppleSiliconMachine, TuistCluster
RUNNER = "spec.ghActionsRunner"

DEFAULTS: list[tuple[type[Object], str, object]] = [
    (Pool, "spec.replicas", 0),
    (Pool, "spec.os", "darwin"),
    (Pool, "spec.podCPUMilli", 8000),
    (Pool, "spec.podMemoryMB", 14336),
    (Pool, "spec.autoscaling.enabled", False),
    (Pool, "spec.autoscaling.minWarmPoolFloor", 1),
    (Pool, "spec.autoscaling.maxReplicas", 0),
    (Pool, "spec.autoscaling.scaleDownCooldownSeconds", 300),
    (Pool, "spec.rollout.maxConcurrentPercent", 5),
    (Pool, "spec.provisioning.maxConcurrentPerFleetSelector", 4),
    (Pool, "spec.provisioning.startTimeoutSeconds", 300),
    (Machine, "spec.type", "M2-L"),
    (Machine, "spec.zone", "fr-par-1"),
    (Machine, "spec.os", "macos-tahoe-26.3"),
    (Machine, f"{RUNNER}.ghOrg", "tuist"),
    (Machine, f"{RUNNER}.ghRunnerLabels", "self-hosted,macos,bare-metal,vm-image-builder"),
]

WITHOUT_DEFAULT: list[tuple[type[Object], str]] = [
    *((Pool, f"spec.{name}") for name in ("image", "fleetSelector", "dispatchLabel")),
    *((Pool, f"spec.{name}") for name in ("runnerLabels", "labels", "runtimeClass")),
    *((Pool, f"spec.{name}") for name in ("idleTimeoutSeconds", "provisioning")),
    *((Machine, f"spec.{name}") for name in ("providerID", "fleetName", "kubeletVersion")),
    *((Machine, f"spec.{name}") for name in ("hostCPU", "hostMemoryMB", "adoptPoolPrefix")),
    *((Machine, f"spec.{name}") for name in ("ghActionsRunner",)),
    *((Machine, f"{RUNNER}.{name}") for name in ("ghRunnerVersion", "ghAppSecretName")),
    (Cluster, "spec.controlPlaneEndpoint"),
]

GOOD: list[tuple[type[Object], str, object]] = [
    (Pool, "spec.replicas", 0),
    (Pool, "spec.replicas", 2**31 - 1),
    (Pool, "spec.rollout.maxConcurrentPercent", 1),
    (Pool, "spec.rollout.maxConcurrentPercent", 100),
    (Pool, "spec.autoscaling.minWarmPoolFloor", 0),
    (Pool, "spec.autoscaling.maxReplicas", 0),
    (Pool, "spec.autoscaling.scaleDownCooldownSeconds", 0),
    (Pool, "spec.provisioning.startTimeoutSeconds", 0),
    (Pool, "spec.provisioning.maxConcurrentPerFleetSelector", 1),
    (Pool, "spec.idleTimeoutSeconds", 0),
    (Pool, "spec.os", "linux"),
    (Pool, "spec.runnerLabels", []),
    (Machine, "spec.os", "Tahoe"),
    (Machine, "spec.os", "macos-tahoe-26.3"),
    (Machine, "spec.os", "Golden Gate"),
    (Machine, "spec.os", "macos-golden-gate-27.0"),
    (Machine, "spec.providerID", SERVER),
    (Machine, "spec.hostCPU", 0),
    (Machine, "spec.fleetName", ""),
    (Machine, "spec.adoptPoolPrefix", ""),
    (Machine, RUNNER, {"ghRunnerVersion": "2.336.0"}),
    (Cluster, "spec.controlPlaneEndpoint", {"host": "a", "port": 65535}),
]

BAD: list[tuple[type[Object], str, object]] = [
    *((Pool, f"spec.{name}", ...) for name in ("image", "fleetSelector", "dispatchLabel")),
    (Pool, "spec.runnerLabels", ...),
    (Pool, "spec", ...),
    (Pool, "spec.replicas", -1),
    (Pool, "spec.replicas", 2**31),
    (Pool, "spec.replicas", "3"),
    (Pool, "spec.rollout.maxConcurrentPercent", 0),
    (Pool, "spec.rollout.maxConcurrentPercent", 101),
    (Pool, "spec.autoscaling.minWarmPoolFloor", -1),
    (Pool, "spec.autoscaling.maxReplicas", -1),
    (Pool, "spec.autoscaling.scaleDownCooldownSeconds", -1),
    (Pool, "spec.autoscaling.enabled", "yes"),
    (Pool, "spec.provisioning.maxConcurrentPerFleetSelector", 0),
    (Pool, "spec.provisioning.startTimeoutSeconds", -1),
    (Pool, "spec.idleTimeoutSeconds", -1),
    (Pool, "spec.podCPUMilli", -1),
    (Pool, "spec.podMemoryMB", -1),
    (Pool, "spec.os", "windows"),
    (Machine, "spec.hostCPU", -1),
    (Machine, "spec.hostMemoryMB", -1),
    (Machine, RUNNER, {}),
    (Machine, "status.phase", "Lost"),
    (Machine, "status.bootstrapAttempts", -1),
    (Machine, "status.conditions", [{"type": "Ready", "status": "Maybe"}]),
    (Machine, "status.addresses", [{"type": "ExternalIP"}]),
    (Cluster, "spec.controlPlaneEndpoint", {"host": "a"}),
    (Cluster, "spec.controlPlaneEndpoint", {"port": 1}),
    (Cluster, "spec.controlPlaneEndpoint", {"host": "a", "port": 65536}),
]

# Refused on writes. If it is stored all the same, controllers must still be able to read the object.
BAD_TO_WRITE: list[tuple[type[Object], str, object]] = [
    (Pool, "spec.image", ""),
    (Pool, "spec.image", "--help"),
    (Pool, "spec.image", "a b"),
    (Pool, "spec.image", "a\n"),
    (Pool, "spec.fleetSelector", ""),
    (Pool, "spec.fleetSelector", "-a"),
    (Pool, "spec.fleetSelector", 64 * "a"),
    (Pool, "spec.dispatchLabel", "a,b"),
    (Pool, "spec.runnerLabels", ["a b"]),
    (Pool, "spec.runnerLabels", 101 * ["a"]),
    (Machine, "spec.providerID", "aws:///i-1"),
    (Machine, "spec.providerID", f"{SERVER}\n"),
    (Machine, "spec.zone", "fr-par-1; reboot"),
    (Machine, "spec.os", "26.3"),
    (Machine, "spec.fleetName", "$(reboot)"),
    (Machine, "spec.adoptPoolPrefix", "-x"),
    (Machine, RUNNER, {"ghRunnerVersion": ""}),
    (Machine, RUNNER, {"ghRunnerVersion": "latest"}),
    (Machine, RUNNER, {"ghRunnerVersion": "2.336.0", "ghOrg": "a/b"}),
    (Machine, RUNNER, {"ghRunnerVersion": "2.336.0", "ghRunnerLabels": "a b"}),
    (Machine, RUNNER, {"ghRunnerVersion": "2.336.0", "ghAppSecretName": "A"}),
    (Cluster, "spec.controlPlaneEndpoint", {"host": 254 * "a", "port": 1}),
]


def case(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)[:60]


def at(body: Any, path: str) -> Any:
    for name in path.split("."):
        body = body["properties"][name]
    return body


def decodes(kind: type[Object], body: dict[str, Any]) -> bool:
    try:
        msgspec.json.decode(msgspec.json.encode(body), type=kind)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.parametrize(("kind", "path", "value"), DEFAULTS, ids=case)
def test_default_is_in_the_schema(kind: type[Object], path: str, value: object) -> None:
    assert at(schema.of_kind(kind), path)["default"] == value


@pytest.mark.parametrize(("kind", "path"), WITHOUT_DEFAULT, ids=case)
def test_field_without_a_default_is_unchanged(kind: type[Object], path: str) -> None:
    assert "default" not in at(schema.of_kind(kind), path)


@pytest.mark.parametrize("kind", LEAST, ids=case)
def test_type_and_a_server_fill_in_the_same_defaults(kind: type[Object]) -> None:
    stored = completed(schema.of_kind(kind), LEAST[kind])

    assert msgspec.convert(stored, kind) == msgspec.convert(LEAST[kind], kind)
    assert stored != LEAST[kind] or kind is Cluster


@pytest.mark.parametrize(("kind", "body"), LIVE, ids=case)
def test_objects_of_existing_fleets_stay_valid(kind: type[Object], body: dict[str, Any]) -> None:
    assert accepts(schema.of_kind(kind), body)
    assert decodes(kind, body)


@pytest.mark.parametrize(("kind", "body"), LIVE, ids=case)
def test_no_field_is_lost_in_a_round_trip(kind: type[Object], body: dict[str, Any]) -> None:
    whole = schema.of_kind(kind)

    encoded = completed(whole, to_wire(msgspec.convert(body, kind)))

    assert parts(encoded) == parts(completed(whole, body))


def parts(body: dict[str, Any]) -> dict[str, Any]:
    return {name: strip(body[name]) for name in ("spec", "status") if name in body}


def strip(value: Any) -> Any:
    """Leave out empty lists and texts, which mean the same as absent ones."""
    if isinstance(value, dict):
        return {key: strip(one) for key, one in value.items() if one not in ("", [])}
    return [strip(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("kind", "path", "value"), GOOD, ids=case)
def test_ranges_are_inclusive(kind: type[Object], path: str, value: object) -> None:
    body = changed(LEAST[kind], path, value)

    assert accepts(schema.of_kind(kind), body)
    assert decodes(kind, body)


@pytest.mark.parametrize(("kind", "path", "value"), BAD, ids=case)
def test_value_out_of_bounds_is_refused(kind: type[Object], path: str, value: object) -> None:
    body = changed(LEAST[kind], path, value)

    assert not accepts(schema.of_kind(kind), body)
    assert not decodes(kind, body)


@pytest.mark.parametrize(("kind", "path", "value"), BAD_TO_WRITE, ids=case)
def test_invalid_syntax_is_refused_on_write_and_decoded_on_read(
    kind: type[Object], path: str, value: object
) -> None:
    body = changed(LEAST[kind], path, value)

    assert not accepts(schema.of_kind(kind), body)
    assert decodes(kind, body)


@pytest.mark.parametrize(
    ("release", "family"),
    [
        ("macos-tahoe-26.3", "tahoe"),
        ("Tahoe", "tahoe"),
        ("tahoe", "tahoe"),
        ("macos-tahoe", "tahoe"),
        ("Golden Gate", "goldengate"),
        ("macos-golden-gate-27.0", "goldengate"),
        ("golden_gate", "goldengate"),
        ("devos-tahoe", "devostahoe"),
        ("macos-sequoia-15.6.1-beta", "sequoia"),
    ],
)
def test_releases_are_matched_by_family(release: str, family: str) -> None:
    assert os_family(release) == family
