"""The client certificate authority of the agent: a change is written and makes a restart of the agent due."""

from __future__ import annotations

from bramley.api.names import host
from bramley.host import agent_daemon, shared_probes
from bramley.host.commands import ReadFile, Stat, Write
from bramley.host.facts import FOLDER, Facts, FileStat, RunResult
from bramley.host.steps.client_authority import ClientAuthority

STEP = ClientAuthority(b"new\n", "m1")


def facts(content: bytes | None, *, pid: int = 0) -> Facts:
    answers = dict.fromkeys(STEP.probes())
    job = RunResult(0, f"\tpid = {pid}\n".encode()) if pid else RunResult(113)
    return Facts(
        {
            **answers,
            agent_daemon.AGENT_PROBE: job,
            shared_probes.BOOT_SESSION: RunResult(0, b"2C1D\n"),
            Stat(host.AGENT_FOLDER): FileStat(FOLDER, mode=0o755, owner="m1:staff"),
            ReadFile(host.CLIENT_AUTHORITY): content,
        }
    )


def test_unchanged_certificate_is_not_written() -> None:
    assert list(STEP.plan(facts(b"new\n", pid=7))) == []


def test_another_certificate_is_written_after_the_restart_note() -> None:
    written = [one.path for one in STEP.plan(facts(b"old\n", pid=7)) if isinstance(one, Write)]
    assert written == [host.RESTART_DUE, host.CLIENT_AUTHORITY]


def test_no_restart_note_without_an_agent() -> None:
    written = [one.path for one in STEP.plan(facts(None)) if isinstance(one, Write)]
    assert written == [host.CLIENT_AUTHORITY]
