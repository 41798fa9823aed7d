"""The last step: check that the Mac is ready, independently of the steps that configured it.

Unmet conditions are waited for and then reported; what a skipped step would have configured is not required. The only change is a reboot: a Mac whose main ruleset does not refer to our anchor
filters nothing until the next boot, so it is rebooted, unless VMs run or it would not come back unattended; if no user is logged in
afterwards, loginwindow is restarted. The agent is unloaded first, because it could start a VM until the last moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host, launchd
from bramley.base.errors import NotConverged
from bramley.host import actions_runner_job, agent_daemon, launch_daemon, loginwindow, shared_probes
from bramley.host.agent_daemon import AgentJob
from bramley.host.commands import Command, Probe, Reboot, RunProbe, Wait
from bramley.host.facts import Facts
from bramley.host.step import Step
from bramley.host.steps import agent_job, firewall
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.firewall import Firewall
from bramley.host.steps.kubeconfig import Kubeconfig
from bramley.host.steps.local_network import LocalNetwork
from bramley.host.steps.preconditions import AGENT_PLIST


@dataclass(frozen=True, slots=True)
class Verification(Step):
    """Check that the agent is ready, that the user is logged in, and that VMs are filtered."""

    name: ClassVar[str] = "verification"
    title: ClassVar[str] = "readiness of the Mac"

    job: AgentJob
    # The names of the steps that the user has excluded by --skip.
    skipped: frozenset[str] = frozenset()

    def probes(self) -> list[Probe]:
        """Probe the agent, the packet filter and the graphical session."""
        endpoints = (agent_job.health_probe(self.job), agent_job.readiness_probe(self.job))
        agent: list[Probe] = [AGENT_PLIST, agent_daemon.AGENT_PROBE, *endpoints]
        rules = (firewall.MAIN_RULES, firewall.ANCHOR_RULES)
        jobs: list[Probe] = [actions_runner_job.WORKER] if self.job.is_builder else []
        return [*rules, *agent, *jobs, *self._local_network.probes()]

    def follow_up_probes(self, facts: Facts) -> Sequence[Probe]:
        """Probe the session of a user with another uid, and the log of an agent that is not ready."""
        is_ready = facts.stat(AGENT_PLIST) is None or not self._agent_problem(facts)
        return [
            *loginwindow.follow_up_probes(self.job.user, facts),
            *([] if is_ready else [agent_daemon.LOG_TAIL]),
        ]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Reboot a Mac that filters nothing, and wait for unmet conditions."""
        # A Mac without an agent is rebooted by an earlier step.
        has_agent = facts.stat(AGENT_PLIST) is not None
        if has_agent and self._lacks_filter(facts) and self._may_reboot(facts):
            yield from self._reboot(facts)
            return
        if (
            has_agent
            and self._requires_session(facts)
            and loginwindow.needs_login(self.job.user, facts)
        ):
            yield from loginwindow.restart_loginwindow(loginwindow.uid_of(self.job.user, facts))
        if problems := self._problems(facts):
            yield Wait(
                probe=self._awaited_probe(),
                purpose=f"wait until the Mac is ready: {'; '.join(problems)}"
                if has_agent
                else "wait until the Mac is ready",
                timeout=agent_job.START_TIMEOUT,
                # `verify` reports the reason from the facts.
                ignore_failure=True,
            )

    def verify(self, facts: Facts) -> None:
        """Report the unmet conditions."""
        if AutoLogin.name not in self.skipped and loginwindow.is_password_rejected(facts):
            raise loginwindow.rejected_password_error(self.job.user)
        if problems := self._problems(facts):
            raise NotConverged("; ".join(problems))

    def pending(self, facts: Facts) -> str:
        """Return that VMs are not filtered, or not reachable, until the Mac is rebooted."""
        if self._lacks_filter(facts):
            reason = "RebootPending: the packet filter does not apply our rules before the next boot of the Mac"
            return f"{reason}; {loginwindow.reboot_blocker(facts) or 'drain it of VMs and run this again'}"
        return "" if LocalNetwork.name in self.skipped else self._local_network.pending(facts)

    def clean_up(self) -> Iterator[Command]:
        """Load the agent again if it was unloaded for a reboot that did not happen; launchd refuses this if it is loaded."""
        *_, loading = launch_daemon.load(launchd.AGENT)
        yield loading

    def _may_reboot(self, facts: Facts) -> bool:
        has_work = shared_probes.vms_may_run(facts) or (
            self.job.is_builder and actions_runner_job.is_busy(facts)
        )
        return not has_work and not loginwindow.reboot_blocker(facts)

    def _reboot(self, facts: Facts) -> Iterator[Command]:
        # The boot loads it again; if there is none, `clean_up` or the next run does.
        yield from launch_daemon.unload(launchd.AGENT)
        yield shared_probes.require_no_vms()
        if self.job.is_builder:
            yield actions_runner_job.require_no_job()
        reasons = ["VMs are not filtered until then"]
        if LocalNetwork.name not in self.skipped and self._local_network.pending(facts):
            reasons.append("the Local Network allowlist is not in effect")
        yield Reboot(purpose=f"reboot the Mac, because {' and '.join(reasons)}")
        if loginwindow.is_set_up(self.job.user, facts):
            # On a Mac with a display the boot logs the user in; a restart of loginwindow would end that session.
            yield loginwindow.wait_for_session(loginwindow.uid_of(self.job.user, facts))

    @property
    def _local_network(self) -> LocalNetwork:
        return LocalNetwork(self.job.user)

    def _problems(self, facts: Facts) -> list[str]:
        user, problems = self.job.user, []
        if agent := self._agent_problem(facts):
            problems.append(f"{agent}; {agent_daemon.describe_log(facts)}")
        if self._requires_session(facts) and not loginwindow.has_session(user, facts):
            problems.append(loginwindow.session_problem(user, facts))
        if AutoLogin.name not in self.skipped and loginwindow.is_password_rejected(facts):
            problems.append(f"the password of automatic login of {user} is wrong")
        if Firewall.name not in self.skipped and not firewall.is_in_force(facts):
            problems.append("our rules of the packet filter are not in force")
        return problems

    def _lacks_filter(self, facts: Facts) -> bool:
        return Firewall.name not in self.skipped and not firewall.is_attached(facts)

    def _requires_session(self, facts: Facts) -> bool:
        # Our own reboot has ended a session that automatic login can create again.
        is_ended = facts.is_rebooted and loginwindow.is_set_up(self.job.user, facts)
        return AutoLogin.name not in self.skipped or is_ended

    def _awaited_probe(self) -> RunProbe:
        is_partial = Kubeconfig.name in self.skipped
        return (agent_job.health_probe if is_partial else agent_job.readiness_probe)(self.job)

    def _agent_problem(self, facts: Facts) -> str:
        if agent_job.Job.name in self.skipped:
            return ""
        if problem := agent_job.health_problem(self.job, facts):
            return problem
        if Kubeconfig.name in self.skipped:
            return ""
        if facts.result(agent_job.readiness_probe(self.job)).code == 0:
            return ""
        return (
            "the agent runs and cannot work with its API server, so its Node is not ready; check that this Mac reaches the server "
            f"in {host.AGENT_KUBECONFIG} and that the server accepts the token in it; if `apply` writes that file, --server sets "
            "the address"
        )
