"""The runners of builders at their forge: whether one is online or has a job, and its removal before its host is wiped.

Such a runner has no Pod and runs its jobs on the host itself, so a drain of the Node does not show them. Its forge refuses to remove a
runner with a job, and gives no job to one that is removed; so the removal, and not an earlier look, decides that a host may be wiped.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from bramley.api.names import events
from bramley.api.scaleway_machine import GHActionsRunner
from bramley.base import errors
from bramley.host import actions_runner_job
from bramley.machines.host_work import HostWork, Logins
from bramley.machines.mac import Mac
from bramley.machines.outcomes import MachineEvent
from bramley.machines.runner_registration import RunnerBusy, RunnerDirectory
from bramley.runtime.writes import FencedKube


@dataclass(frozen=True, slots=True)
class Removal:
    """What is waited for before the runner can be removed, empty if nothing, and what to report."""

    waits_for: str = ""
    events: tuple[MachineEvent, ...] = ()


async def is_busy(
    directory: RunnerDirectory, namespace: str, spec: GHActionsRunner, name: str
) -> bool:
    """Return whether a runner has a job; a forge that does not answer counts as yes."""
    try:
        found = await directory.find(namespace, spec, name)
    except errors.BramleyError:
        return True
    return found is not None and found.busy


@dataclass(frozen=True, slots=True)
class BuilderRunners:
    """The runners of one kind of Macs."""

    kube: FencedKube
    directory: RunnerDirectory
    work: HostWork
    logins: Logins

    async def is_online(self, mac: Mac) -> bool | None:
        """Return whether the runner of a builder is online; None if the forge does not answer."""
        if mac.builder is None:
            return None
        with suppress(errors.Unavailable, errors.RateLimited, errors.Refused):
            found = await self.directory.find(mac.namespace, mac.builder, mac.name)
            return found is not None and found.online
        return None

    async def is_busy(self, mac: Mac) -> bool:
        """Return whether the runner of a builder has a job; a forge that does not answer counts as yes."""
        if mac.builder is None:
            return False
        return await is_busy(self.directory, mac.namespace, mac.builder, mac.name)

    async def remove(self, mac: Mac) -> Removal:
        """Remove the runner of a builder, unless it has a job. Repeating is safe."""
        if mac.builder is None:
            return Removal()
        try:
            self.kube.check()
            removed = await self.directory.remove(mac.namespace, mac.builder, mac.name)
        except errors.LeaseLost:
            raise
        except RunnerBusy:
            return Removal(f"the runner {mac.name} of this builder runs a job")
        except (errors.Unavailable, errors.RateLimited) as error:
            return Removal("the forge of its runner does not answer", _failed(error))
        except errors.BramleyError as error:
            # Credentials that are missing or revoked show nothing about the job; a forge removes a runner that stays offline by itself.
            is_running = await self.work.runs_job(mac, self.logins)
            return Removal(actions_runner_job.BUSY if is_running else "", _failed(error))
        text = f"The runner {mac.name} is removed from its forge"
        found = (MachineEvent("Normal", events.RUNNER_REMOVED, text),) if removed else ()
        return Removal(events=found)


def _failed(error: errors.BramleyError) -> tuple[MachineEvent, ...]:
    return (MachineEvent("Warning", events.RUNNER_REMOVAL_FAILED, str(error)),)
