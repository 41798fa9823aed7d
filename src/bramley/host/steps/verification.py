"""Whether the Mac is ready for work, seen from outside of the steps that made it so, and in the end.

What is not so is waited for, and then told by its name. One thing only is done: a Mac whose main ruleset does not refer to our rules
filters nothing until it starts again, so it is restarted, unless VMs run or it would not come back by itself; and if that logs nobody
in, loginwindow is restarted. The agent is ended first, since it could start a VM until the last moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host, launchd
from bramley.base.errors import NotConverged
from bramley.host import agent_log, launch_daemon, login, restarting, vms
from bramley.host.commands import Command, Probe, Reboot, Wait
from bramley.host.facts import Facts
from bramley.host.plist import AgentJob
from bramley.host.steps import agent_job, firewall
from bramley.host.steps.local_network import LocalNetwork
from bramley.host.steps.preconditions import AGENT


@dataclass(frozen=True, slots=True)
class Verification:
    """See that the agent lives, that somebody is logged in, and that VMs are filtered."""

    name: ClassVar[str] = "verification"
    title: ClassVar[str] = "whether the Mac is ready"

    job: AgentJob

    def wanted(self) -> None:
        """Stamp nothing: it is seen by looking."""

    def looks(self) -> list[Probe]:
        """Ask for all of it."""
        asked = (agent_job.health(self.job), agent_job.readiness(self.job))
        agent: list[Probe] = [AGENT, restarting.AGENT, *asked]
        return [firewall.MAIN, firewall.LIVE, *agent, *self._local_network.looks()]

    def looks_further(self, seen: Facts) -> Sequence[Probe]:
        """Ask for the session of a user with another number, and for the last words of an agent that does not do well."""
        is_well = seen.found(AGENT) is None or not self._agent_trouble(seen)
        return [*login.looks_further(self.job.user, seen), *([] if is_well else [agent_log.LAST])]

    def refuse(self, seen: Facts) -> None:
        """Refuse nothing: at the beginning nothing of it need be so."""

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Restart a Mac that filters nothing, and wait for what is not so."""
        # A Mac that has not got its agent yet comes by a start on the way there.
        is_made = seen.found(AGENT) is not None
        is_idle = not vms.may_run(seen) and not login.lost_by_restart(seen)
        if is_made and not firewall.is_attached(seen) and is_idle:
            yield from self._restart(seen)
            return
        if is_made and login.is_due(self.job.user, seen):
            yield from login.kick(login.uid_of(self.job.user, seen))
        if wrong := self._wrong(seen):
            yield Wait(
                look=agent_job.readiness(self.job),
                purpose=f"wait until the Mac is ready: {'; '.join(wrong)}"
                if is_made
                else "wait until the Mac is ready",
                within=agent_job.STARTED_WITHIN,
                # What is wrong is told from the facts.
                else_go_on=True,
            )

    def confirm(self, seen: Facts) -> None:
        """Tell what is not so."""
        if login.is_sealed(seen):
            raise login.sealed_refusal(self.job.user)
        if wrong := self._wrong(seen):
            raise NotConverged("; ".join(wrong))

    def pending(self, seen: Facts) -> str:
        """Tell that VMs are not filtered, or not reached, until the Mac is restarted."""
        if not firewall.is_attached(seen):
            told = "RebootPending: the packet filter does not heed our rules before the next start of the Mac"
            return f"{told}; {login.lost_by_restart(seen) or 'drain it of VMs and run this again'}"
        return self._local_network.pending(seen)

    def tidy(self) -> Iterator[Command]:
        """Yield what brings an agent back that was ended for a restart which did not come; refused if it is there."""
        *_, loading = launch_daemon.load(launchd.AGENT)
        yield loading

    def _restart(self, seen: Facts) -> Iterator[Command]:
        # The start loads it again, and where none comes, the next run does.
        yield from launch_daemon.unload(launchd.AGENT)
        yield vms.none_has_started()
        yield Reboot(purpose="restart the Mac, since VMs are not filtered until then")
        if login.is_set_up(self.job.user, seen):
            # With a display the start logs the user in, and nobody must end that session.
            yield login.await_session(login.uid_of(self.job.user, seen))

    @property
    def _local_network(self) -> LocalNetwork:
        return LocalNetwork(self.job.user)

    def _wrong(self, seen: Facts) -> list[str]:
        user = self.job.user
        told = {
            f"{user} is not logged in at the Mac, so no VM starts": login.has_session(user, seen),
            f"the password of automatic login of {user} is wrong": not login.is_sealed(seen),
            "our rules of the packet filter are not in force": firewall.is_in_force(seen),
        }
        agent = self._agent_trouble(seen)
        first = [f"{agent}; {agent_log.told(seen)}"] if agent else []
        return first + [what for what, is_so in told.items() if not is_so]

    def _agent_trouble(self, seen: Facts) -> str:
        if told := agent_job.trouble(self.job, seen):
            return told
        if seen.said(agent_job.readiness(self.job)).code == 0:
            return ""
        return (
            "the agent lives and does not come to terms with its API server, so its Node is not ready; see that this Mac "
            f"reaches the server in {host.AGENT_KUBECONFIG}, and that the token there is let in; where apply makes that file, "
            "--server names the address in it"
        )
