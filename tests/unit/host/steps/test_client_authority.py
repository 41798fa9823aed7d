"""The authority of those who may ask the agent: written when it is another, and then the agent is due for a restart."""

from __future__ import annotations

from bramley.api.names import host
from bramley.host import boots, restarting
from bramley.host.commands import Find, LookAt, Write
from bramley.host.facts import FOLDER, Facts, Found, Said
from bramley.host.steps.client_authority import ClientAuthority

STEP = ClientAuthority(b"new\n", "m1")


def seen(content: bytes | None, *, pid: int = 0) -> Facts:
    answers = dict.fromkeys(STEP.looks())
    told = Said(0, f"\tpid = {pid}\n".encode()) if pid else Said(113)
    return Facts(
        {
            **answers,
            restarting.AGENT: told,
            boots.BOOT: Said(0, b"2C1D\n"),
            Find(host.AGENT_FOLDER): Found(FOLDER, mode=0o755, owner="m1:staff"),
            LookAt(host.CLIENT_AUTHORITY): content,
        }
    )


def test_the_same_certificate_is_left_alone() -> None:
    assert list(STEP.plan(seen(b"new\n", pid=7))) == []


def test_another_one_is_written_after_the_note_that_the_agent_is_to_be_restarted() -> None:
    written = [one.path for one in STEP.plan(seen(b"old\n", pid=7)) if isinstance(one, Write)]
    assert written == [host.RESTART_DUE, host.CLIENT_AUTHORITY]


def test_without_an_agent_there_is_nothing_to_restart() -> None:
    written = [one.path for one in STEP.plan(seen(None)) if isinstance(one, Write)]
    assert written == [host.CLIENT_AUTHORITY]
