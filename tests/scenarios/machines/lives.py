"""Lives of machines under two managers, of which the leader is killed or suspended at one of its calls."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType

from bramley.api.mac_host import MacHost, MacHostSpec
from bramley.api.meta import ObjectMeta
from bramley.api.names import annotations as annotation_names
from bramley.api.names import machines
from bramley.api.scaleway_machine import GHActionsRunner
from bramley.machines import mac_draft, recovery
from tests import virtual_time
from tests.scenarios.machines.builders import APP_SECRET, ORGANISATION
from tests.scenarios.machines.fleet_world import FLEET, NAMESPACE, FleetWorld, a_fleet_world
from tests.scenarios.machines.gates import CHANGES
from tests.scenarios.machines.leaders import Leaders, Stop
from tests.scenarios.machines.stories import (
    Managers,
    annotate,
    create_secret,
    start_job,
    until_updated,
)

# A release waits for claims of an earlier leader, and a sweep removes what a suspended one has written late.
_AT_REST_SECONDS = 600
_HEARTBEAT = timedelta(minutes=1)
_LOOK_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Life:
    """What happens, in a pool of this many hosts."""

    run: Callable[[FleetWorld, Leaders], Awaitable[None]]
    servers: int = 0
    builders: bool = False


def live(name: str, stop: Stop | None = None, *, seed: int = 0) -> list[str]:
    """Run a life and return the checkpoints of its first leader; raise if a promise is broken at any moment."""
    return virtual_time.run(_live(LIVES[name], stop, seed), seed=seed)


@functools.cache
def checkpoints(name: str) -> list[str]:
    """Return the checkpoints of a leader that is not stopped."""
    return live(name)


def changes_at_provider(name: str) -> list[int]:
    """Return the checkpoints before requests that change something at the provider."""
    changes = tuple(f"before {change}" for change in CHANGES)
    return [number for number, call in enumerate(checkpoints(name), 1) if call.startswith(changes)]


async def _live(life: Life, stop: Stop | None, seed: int) -> list[str]:
    async with a_fleet_world(
        servers=life.servers, seed=seed, heartbeat=_HEARTBEAT, builders=life.builders
    ) as world:
        world.every = _LOOK_SECONDS
        leaders = Leaders(world, stop)
        await life.run(world, leaders)
        await leaders.settle(_AT_REST_SECONDS)
        leaders.check()
        await world.invariants.check_at_rest()
        abandoned = [name for name in world.hosts() if name.startswith(machines.CLAIM_PREFIX)]
        assert not abandoned, f"claims are left: {abandoned}"
        return leaders.checkpoints


async def _serve(world: FleetWorld, leaders: Leaders) -> None:
    """A fleet is scaled up, and to nothing while a job runs on one host and the other one is set up."""
    await leaders.start()
    await world.create_fleet(1)
    first = await _until_machine(world)
    await _until_ready(world, first)
    await start_job(world, "job", first, seconds=300)
    await world.scale(2)
    await _until_step(world, await _until_machine(world, first))
    await world.scale(0)
    await _until_gone(world)


async def _cancel(world: FleetWorld, leaders: Leaders) -> None:
    """A machine is deleted as soon as its leader has stopped, or once it serves."""
    await leaders.start()
    first = leaders.candidates[0].gate
    await world.create_machine("a", fleet_name=FLEET)

    async def is_time() -> bool:
        machine = (await world.machines())["a"]
        return first.stopped.is_set() or machine.status.phase == "Ready"

    await world.until(is_time)
    await world.delete_machine("a")
    await _until_gone(world)


async def _recover(world: FleetWorld, leaders: Leaders) -> None:
    """A host is rebooted, then released, because only an installation repairs it."""
    tiers = recovery.Settings(reboot_after=1, max_attempts=2)
    leaders.settings = {"decisions": mac_draft.Settings(recovery=tiers)}
    [server] = world.hosts().values()
    world.faults(server).fail_until_reinstalled()
    password = server.password
    await leaders.start()
    await world.create_machine("a", fleet_name=FLEET)
    await _until_ready(world, "a")
    assert server.password != password


async def _update(world: FleetWorld, leaders: Leaders) -> None:
    """A new agent reaches two hosts, one after the other, and then one of them gets another Tart; a job runs on each."""
    managers = Managers(world)
    await managers.start()
    for name in ("a", "b"):
        await world.create_machine(name, fleet_name=FLEET)
    await _until_ready(world, "a", "b")
    before = list((await world.machines()).values())
    await managers.stop()
    for name in ("a", "b"):
        await start_job(world, f"job-{name}", name, seconds=900)

    artifacts = world.artifacts
    leaders.settings = {"agent": artifacts.newer_agent, "tart": artifacts.newer_tart}
    leaders.max_connected = 1
    await leaders.start()
    await until_updated(world, "a", "b", before=before)
    await annotate(world, "a", annotation_names.REPLACE_TART)
    await world.until(lambda: _is_replaced(world))
    await until_updated(world, "a", "b", before=before)
    await world.until(lambda: _have_succeeded(world))
    nodes = await world.nodes()
    assert not any(node.spec.unschedulable for node in nodes.values())


async def _build(world: FleetWorld, leaders: Leaders) -> None:
    """A builder registers its runner, and is deleted."""
    await leaders.start()
    runner = GHActionsRunner(
        gh_runner_version=world.artifacts.actions_runner.version,
        gh_org=ORGANISATION,
        gh_app_secret_name=APP_SECRET,
    )
    await world.create_machine("builder", fleet_name=FLEET, gh_actions_runner=runner)
    await _until_ready(world, "builder")
    assert world.builders is not None
    assert world.builders.online() == ["builder"]
    await world.delete_machine("builder")
    await _until_gone(world)


async def _own(world: FleetWorld, leaders: Leaders) -> None:
    """A Mac that is not rented joins and leaves."""
    made = await world.add_own_mac("own")
    await create_secret(world, "own-login", sudo_password=made.password)
    await leaders.start()
    spec = MacHostSpec(
        address=world.macs.address("own"), credentials_secret_name="own-login", user=made.user
    )
    await world.kube.create(
        MacHost(metadata=ObjectMeta(name="own", namespace=NAMESPACE), spec=spec)
    )
    await world.until(lambda: _own_phase(world, "Ready"))
    await world.kube.delete(MacHost, "own", namespace=NAMESPACE)
    await world.until(lambda: _own_phase(world, ""))


async def _until_machine(world: FleetWorld, *others: str) -> str:
    """Wait for a machine beside the others, and return its name."""

    async def appears() -> str:
        return next(iter(set(await world.machines()) - set(others)), "")

    name: str = await world.until(appears)
    return name


async def _until_ready(world: FleetWorld, *names: str) -> None:
    async def are_ready() -> bool:
        found = await world.machines()
        return all(found[name].status.phase == "Ready" for name in names)

    await world.until(are_ready)


async def _until_step(world: FleetWorld, name: str) -> None:
    """Wait until something is done on the host of a machine."""

    async def has_step() -> bool:
        return bool((await world.machines())[name].status.step)

    await world.until(has_step)


async def _until_gone(world: FleetWorld) -> None:
    async def are_gone() -> bool:
        return not await world.machines()

    await world.until(are_gone)


async def _is_replaced(world: FleetWorld) -> bool:
    machine = (await world.machines())["a"]
    return annotation_names.REPLACE_TART not in machine.metadata.annotations


async def _have_succeeded(world: FleetWorld) -> bool:
    return {pod.status.phase for pod in (await world.pods()).values()} == {"Succeeded"}


async def _own_phase(world: FleetWorld, phase: str) -> bool:
    """Return whether the MacHost has this phase; an empty one if there is none."""
    found = (await world.kube.list(MacHost)).items
    return [each.status.phase for each in found] == ([phase] if phase else [])


LIVES: Mapping[str, Life] = MappingProxyType(
    {
        "serve": Life(_serve, servers=2),
        "cancel": Life(_cancel, servers=1),
        "recover": Life(_recover, servers=1),
        "update": Life(_update, servers=2),
        "build": Life(_build, servers=1, builders=True),
        "own": Life(_own),
    }
)
