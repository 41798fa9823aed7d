"""The steps of scenarios. Each prints as the code that creates it, so that a failing scenario can be copied into a test."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bramley.api.core import Node, Pod
from bramley.base import errors
from tests.scenarios.agent_life.invariants import FINISHED
from tests.scenarios.agent_life.world import IMAGE, NAMESPACE, NODE, TAGGED
from tests.scenarios.agent_machine.machine import Machine
from tests.scenarios.agent_machine.network import LinkState, WriteFault

GRACE = 10
UNKNOWN = "ghcr.io/example/unknown:1"

# By kind: what the guest does, and further fields of the Pod's spec.
KINDS: Mapping[str, tuple[dict[str, str], dict[str, Any]]] = {
    "works": ({}, {}),
    "fails": ({"CODE": "3"}, {}),
    "works long": ({"WORK": "100"}, {}),
    "crashes": ({"CODE": "null", "THEN": "crash"}, {}),
    "ignores shutdown": ({"WORK": "60", "IGNORES_SHUTDOWN": "true"}, {}),
    "is late": ({"WORK": "300"}, {"activeDeadlineSeconds": 30}),
    "has no agent": ({"HAS_AGENT": "false"}, {}),
    "falls silent": ({"WORK": "300", "FALLS_SILENT": "20", "SILENT_FOR": "200"}, {}),
    "again and again": ({}, {"restartPolicy": "Always"}),
    "tagged": ({}, {}),
    "unsupported": ({}, {"initContainers": [{"name": "before", "image": IMAGE}]}),
    "unknown": ({}, {}),
}
IMAGES = {"tagged": TAGGED, "unknown": UNKNOWN}


@dataclass(frozen=True)
class Wait:
    """Time passes."""

    seconds: float

    async def apply(self, _: Machine) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True)
class Create:
    """A Pod is created, unless there is one of that name."""

    name: str
    kind: str = "works"

    async def apply(self, machine: Machine) -> None:
        try:
            await machine.world.kube.create_wire(Pod.resource, self._wire(), namespace=NAMESPACE)
        except errors.AlreadyExists:
            return
        machine.unsatisfiable.discard(self.name)
        if self.kind == "unknown":
            machine.unsatisfiable.add(self.name)

    def _wire(self) -> dict[str, Any]:
        guest, spec = KINDS[self.kind]
        env = [{"name": f"BRAMLEY_SIM_{key}", "value": value} for key, value in guest.items()]
        image = IMAGES.get(self.kind, IMAGE)
        policy = "Always" if self.kind == "tagged" else "IfNotPresent"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {
                "nodeName": NODE,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": GRACE,
                "containers": [
                    {"name": "vm", "image": image, "imagePullPolicy": policy, "env": env}
                ],
                "tolerations": [{"operator": "Exists"}],
                **spec,
            },
        }


@dataclass(frozen=True)
class Delete:
    """A Pod is deleted; None is its own grace period."""

    name: str
    grace: int | None = None

    async def apply(self, machine: Machine) -> None:
        grace = None if self.grace is None else timedelta(seconds=self.grace)
        await machine.world.delete(self.name, grace=grace)


@dataclass(frozen=True)
class ForceDelete:
    """A Pod's finalizers are removed and it is deleted without a grace period."""

    name: str

    async def apply(self, machine: Machine) -> None:
        world = machine.world
        pod = await world.find(self.name)
        if pod is None:
            return
        world.invariants.excused.add(pod.uid)
        patch: dict[str, Any] = {"metadata": {"finalizers": []}}
        try:
            await world.kube.merge_patch(Pod, self.name, patch, namespace=NAMESPACE)
        except errors.NotFound:
            return
        await world.delete(self.name, grace=timedelta())


FAULTS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "clone fails": ("tart clone", "fail", {}),
    "clone reports failure": ("tart clone", "fail", {"at": "end"}),
    "clone is half made": ("tart clone", "half", {}),
    "clone is slow": ("tart clone", "slow", {"seconds": 40.0}),
    "clone hangs": ("tart clone", "hang", {}),
    "clone finds no space": ("tart clone", "no_space", {}),
    "set fails": ("tart set", "fail", {}),
    "set hangs": ("tart set", "hang", {}),
    "run finds no session": ("tart run", "no_session", {}),
    "run finds a lock": ("tart run", "nvram_locked", {}),
    "run is one too many": ("tart run", "limit", {}),
    "run fails": ("tart run", "fail", {}),
    "run is slow": ("tart run", "slow", {"seconds": 20.0}),
    "run ignores its stop": ("tart run", "ignores_stop", {}),
    "guest outlives its tart": ("tart run", "outlives", {}),
    "stop hangs": ("tart stop", "hang", {}),
    "stop fails": ("tart stop", "fail", {}),
    "delete fails": ("tart delete", "fail", {}),
    "delete reports failure": ("tart delete", "fail", {"at": "end"}),
    "delete hangs": ("tart delete", "hang", {}),
    "ip hangs": ("tart ip", "hang", {}),
    "ip fails": ("tart ip", "fail", {}),
    "exec hangs": ("tart exec", "hang", {}),
    "guest's agent is away": ("tart exec", "no_agent", {}),
    "pull fails": ("tart pull", "fail", {}),
    "pull stalls": ("tart pull", "stall", {"percent": 40}),
    "pull is reset": ("tart pull", "reset", {}),
    "pull hangs": ("tart pull", "hang", {}),
    "pull finds no space": ("tart pull", "no_space", {}),
    "registry is throttled": ("tart pull", "status", {"code": 429}),
    "registry is broken": ("tart pull", "status", {"code": 503}),
    "list hangs": ("tart list", "hang", {}),
    "list fails": ("tart list", "fail", {}),
    "get hangs": ("tart get", "hang", {}),
    "set is slow": ("tart set", "slow", {"seconds": 15.0}),
    "set reports failure": ("tart set", "fail", {"at": "end"}),
    "stop is slow": ("tart stop", "slow", {"seconds": 15.0}),
    "delete is slow": ("tart delete", "slow", {"seconds": 15.0}),
    "list is slow": ("tart list", "slow", {"seconds": 15.0}),
    "pull is slow": ("tart pull", "slow", {"seconds": 60.0}),
    "launchctl is slow": ("launchctl", "slow", {"seconds": 5.0}),
    "launchctl hangs": ("launchctl", "hang", {}),
    "launchctl fails": ("launchctl", "fail", {"code": 1}),
    "sudo hangs": ("sudo", "hang", {}),
}


@dataclass(frozen=True)
class Break:
    """A program fails the next times; None is until all faults are removed."""

    fault: str
    times: int | None = 1

    async def apply(self, machine: Machine) -> None:
        program, do, details = FAULTS[self.fault]
        machine.world.mac.faults.add(program, do, times=self.times, **details)


@dataclass(frozen=True)
class Heal:
    """All faults are removed."""

    async def apply(self, machine: Machine) -> None:
        machine.remove_faults()


@dataclass(frozen=True)
class Connect:
    """The state of the network changes."""

    state: LinkState

    async def apply(self, machine: Machine) -> None:
        machine.network.state = self.state


@dataclass(frozen=True)
class Lag:
    """Every request takes a while."""

    seconds: float

    async def apply(self, machine: Machine) -> None:
        machine.network.lag = self.seconds


@dataclass(frozen=True)
class FailWrites:
    """The agent's next writes fail."""

    fault: WriteFault
    times: int = 1

    async def apply(self, machine: Machine) -> None:
        machine.network.write_faults.extend([self.fault] * self.times)


@dataclass(frozen=True)
class Disconnect:
    """All connections are lost, and some of the next watches get 410 Gone."""

    expired: int = 0

    async def apply(self, machine: Machine) -> None:
        machine.network.drop()
        machine.network.expired = self.expired


@dataclass(frozen=True)
class Kill:
    """The agent is killed after so many checkpoints, and is down for so long."""

    checkpoints: int
    down: float = 1.0

    async def apply(self, machine: Machine) -> None:
        machine.down = self.down
        if self.checkpoints:
            machine.killed_in = self.checkpoints
        else:
            machine.kill_agent()


@dataclass(frozen=True)
class KillProcess:
    """A process of a run is killed: its supervisor, its tart, or its guest."""

    which: str

    async def apply(self, machine: Machine) -> None:
        mac = machine.world.mac
        for run in list(mac.supervised.values())[:1]:
            guest = mac.tart.guests.get(run.run.vm)
            found = {
                "supervisor": run.supervisor,
                "tart": run.tart,
                "guest": guest.process if guest else None,
            }
            if (process := found[self.which]) is not None:
                mac.table.kill(process.pid)


@dataclass(frozen=True)
class DamageRecord:
    """The agent is killed, and the newest record of a VM is truncated."""

    kept: int = 0

    async def apply(self, machine: Machine) -> None:
        machine.kill_agent()
        # Not before it is reaped, because that restores the disk as it was at the kill.
        await machine.reaped()
        folder = machine.world.mac.folders.ledger / "vms"
        records = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        for path in records[-1:]:
            path.write_bytes(path.read_bytes()[: self.kept])


@dataclass(frozen=True)
class MustEnd:
    """A Pod must have ended by then."""

    name: str
    within: float

    async def apply(self, machine: Machine) -> None:
        async def has_ended() -> bool:
            pod = await machine.world.find(self.name)
            return pod is not None and pod.status.phase in FINISHED

        within = timedelta(seconds=self.within)
        await machine.world.until(has_ended, within=within, what=f"{self.name} has ended")


@dataclass(frozen=True)
class Stop:
    """The agent is stopped with a signal, and the next one starts."""

    async def apply(self, machine: Machine) -> None:
        await machine.stop()


@dataclass(frozen=True)
class Reboot:
    """The Mac is rebooted."""

    async def apply(self, machine: Machine) -> None:
        machine.reboot()


@dataclass(frozen=True)
class SetTime:
    """The Mac's clock is set ahead or back."""

    hours: float

    async def apply(self, machine: Machine) -> None:
        machine.clock.jump(timedelta(hours=self.hours))


@dataclass(frozen=True)
class LoseSession:
    """The GUI session is gone; a new loginwindow logs in by itself, or not."""

    logs_in: bool

    async def apply(self, machine: Machine) -> None:
        session = machine.world.mac.session
        session.logs_in = self.logs_in
        session.end()


@dataclass(frozen=True)
class DeleteNode:
    """The Node is deleted."""

    async def apply(self, machine: Machine) -> None:
        try:
            await machine.world.kube.delete(Node, NODE)
        except errors.NotFound:
            return


@dataclass(frozen=True)
class LeakSlot:
    """The system counts a guest that has no process."""

    async def apply(self, machine: Machine) -> None:
        machine.world.mac.settings.host(leaked_slots=1)


@dataclass(frozen=True)
class FillDisk:
    """Other files use so much of the disk."""

    gigabytes: int

    async def apply(self, machine: Machine) -> None:
        machine.world.mac.settings.host(other_bytes=self.gigabytes * 10**9)


@dataclass(frozen=True)
class CreateManually:
    """The shell user creates a VM."""

    async def apply(self, machine: Machine) -> None:
        await machine.shell_user.create()


@dataclass(frozen=True)
class PushManually:
    """The shell user pushes a VM."""

    leased: bool

    async def apply(self, machine: Machine) -> None:
        machine.shell_user.push(leased=self.leased)


@dataclass(frozen=True)
class RunManually:
    """The shell user runs a VM, or a program that runs a Linux guest until the next reboot."""

    docker: bool = False

    async def apply(self, machine: Machine) -> None:
        (machine.shell_user.run_docker if self.docker else machine.shell_user.run)()


@dataclass(frozen=True)
class StopManually:
    """The shell user stops the running VM."""

    async def apply(self, machine: Machine) -> None:
        machine.shell_user.stop()
