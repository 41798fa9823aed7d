"""`bramley host` on one Mac: facts, plan, apply, an interrupted apply, verify, prepare and remove; and refused input."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from bramley.api.names import host
from bramley.base.secret import Secret
from bramley.host import kcpassword, sequence
from bramley.sim.ssh import tart_bundle
from bramley.sim.ssh.faults import Fault, FaultKind
from tests.process.bootstrap.host_cli import PASSWORD, HostCli, host_cli
from tests.process.bootstrap.macs import differing
from tests.process.bootstrap.shared_loop import TIMEOUT, RunOnLoop, open_on_loop

# Foreign lines, before and after Apple's lines.
BEFORE, AFTER = b"# \xff\n\tset skip on lo0   \n", b'\nanchor "others/*"\n'
TART = hashlib.sha256(tart_bundle.archive()).hexdigest()


async def test_apply_is_resumed_after_a_kill_and_remove_restores_the_mac(tmp_path: Path) -> None:
    async with host_cli(tmp_path) as cli:
        mac = cli.served.mac
        apple = mac.files.read(host.PF_CONF) or b""
        mac.files.write(host.PF_CONF, BEFORE + apple + AFTER)
        original = mac.files.read(host.PF_CONF)

        await check_read_only_commands(cli)
        await kill_during_upload_of_tart(cli)

        applied = await cli.with_config("apply", "-o", "json")
        assert applied.code == 0, applied.err
        assert applied.document["changed"]["tart"] > 0
        assert (mac.files.read(host.PF_CONF) or b"").startswith(original or b"?")
        assert mac.state["console"]["user"] == "m1"
        assert not [path for path, _ in mac.files.facts() if "incoming" in path]

        verified = await cli.with_config("verify", "-o", "json")
        assert verified.code == 0, verified.out
        assert verified.document["converged"] is True
        before, commands = mac.snapshot(), len(cli.served.commands)
        again = await cli.with_config("apply")
        assert again.code == 0
        assert "was already up to date; nothing was changed" in again.out
        assert len(cli.served.commands) <= commands + 2
        assert differing(mac.snapshot(), before) is None

        shown = await cli.host("remove", "--dry-run", "-o", "json")
        assert (shown.code, mac.snapshot()) == (0, before)
        assert shown.document["converged"] is False
        removed = await cli.host("remove", "--yes", "--no-keep-tart")
        assert removed.code == 0, removed.err
        assert mac.files.read(host.PF_CONF) == original
        assert not mac.files.exists(host.TART_BINARY)
        assert not mac.files.exists(host.STAMPS)


async def check_read_only_commands(cli: HostCli) -> None:
    facts = await cli.host("facts", "-o", "json")
    # The first command has created files that only a running Mac has.
    before = cli.served.mac.snapshot()

    planned = await cli.with_config("plan", "-o", "json")
    dry = await cli.with_config("apply", "--dry-run")
    verified = await cli.with_config("verify", "--skip", "preconditions")

    assert [one.code for one in (facts, planned, dry, verified)] == [0, 0, 0, 1], dry.err
    assert facts.document["host"] == cli.target
    assert planned.document["converged"] is False
    names = [step["name"] for step in planned.document["steps"]]
    assert names == [name for name in sequence.NAMES if name in names]
    assert "+m1 ALL=(ALL) NOPASSWD: ALL\n" in dry.out
    assert PASSWORD not in dry.out + planned.out
    assert differing(cli.served.mac.snapshot(), before) is None
    # Each command needs at most two round trips.
    assert len(cli.served.commands) <= 2 * 4


async def kill_during_upload_of_tart(cli: HostCli) -> None:
    """Kill the process during the upload."""
    cli.served.faults.set(Fault(do=FaultKind.SLOW, match=f"*{TART}*", bytes=20))
    process = await cli.start("apply", "-c", str(cli.config), password=PASSWORD)
    async with asyncio.timeout(TIMEOUT):
        while not any(TART in text for text in cli.served.commands):
            assert process.returncode is None, await process.communicate()
            await asyncio.sleep(0.02)
    process.kill()
    await process.communicate()
    cli.served.faults.set()
    assert not cli.served.mac.files.exists(host.TART_BUNDLE)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HostCli, RunOnLoop]]:
    """Return a Mac that these tests do not change."""
    with open_on_loop(lambda: host_cli(tmp_path_factory.mktemp("cli"))) as both:
        yield both


INVALID_ARGUMENTS = [
    pytest.param(["plan", "--only", "firewal"], "unknown step firewal; the steps are ", id="step"),
    pytest.param(["plan", "--skip", "sudo,tart"], "unknown step sudo,tart", id="steps"),
    pytest.param(["apply", "--connect-timeout", "soon"], "--connect-timeout", id="timeout"),
]


@pytest.mark.parametrize(("arguments", "message"), INVALID_ARGUMENTS)
def test_invalid_arguments_are_refused_before_the_first_connection(
    shared: tuple[HostCli, RunOnLoop], arguments: list[str], message: str
) -> None:
    cli, run = shared
    commands = len(cli.served.commands)

    result = run(cli.with_config(*arguments))

    assert result.code == 2
    assert message in result.err
    assert len(cli.served.commands) == commands


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("node: Mac_1\n", "node"),
        ("node: mac-1\nnod: x\n", "nod"),
        ("node: mac-1\nartifacts: {tart: {file: no.tar.gz, version: 2.32.1}}\n", "no.tar.gz"),
        ("node: mac-1\nuser: other\n", "is for the user other"),
    ],
    ids=["missing", "grammar", "misspelt", "no artifact", "other user"],
)
def test_invalid_configuration_is_refused_before_the_first_connection(
    shared: tuple[HostCli, RunOnLoop], text: str | None, message: str
) -> None:
    cli, run = shared
    commands = len(cli.served.commands)
    path = cli.folder / "missing.yaml" if text is None else cli.file("wrong.yaml", text)

    result = run(cli.host("apply", "-c", str(path)))

    assert result.code in {1, 2}
    assert message in result.err
    assert "Traceback" not in result.err
    assert len(cli.served.commands) == commands


def test_wrong_password_is_reported_and_tried_at_most_twice(
    shared: tuple[HostCli, RunOnLoop],
) -> None:
    cli, run = shared
    before = cli.served.mac.snapshot()

    result = run(cli.host("facts", password="not it"))

    assert result.code in {1, 2}
    assert "password" in result.err
    assert "kubeconfig" not in result.err
    assert "not it" not in result.err
    assert cli.served.mac.snapshot() == before
    with cli.served.mac.change() as state:
        assert state["users"]["m1"].pop("wrong_count") <= 2


def test_changed_host_key_is_refused_until_it_is_accepted(
    shared: tuple[HostCli, RunOnLoop],
) -> None:
    cli, run = shared
    assert run(cli.host("facts")).code == 0
    cli.served.change_host_key()
    commands = len(cli.served.commands)

    refused = run(cli.host("facts"))
    accepted = run(cli.host("facts", "--accept-new-host-key"))

    assert refused.code == 2
    assert "host key" in refused.err
    assert "--accept-new-host-key" in refused.err
    assert accepted.code == 0, accepted.err
    assert len(cli.served.commands) == commands + 1
    assert run(cli.host("facts")).code == 0


async def test_mac_is_prepared_with_the_right_password_only(tmp_path: Path) -> None:
    async with host_cli(tmp_path) as cli:
        first = await cli.host("prepare", "-o", "json")
        assert first.code == 0, first.err
        assert first.document["changed"]["auto-login"] > 0
        mac = cli.served.mac
        assert mac.files.read(host.KCPASSWORD) == kcpassword.encode(Secret(PASSWORD))
        assert mac.state["console"]["user"] == "m1"
        # From now on sudo accepts any password, and the login uses a key.
        key = await authorize_key(cli)
        before = mac.snapshot()

        mistyped = await cli.host("prepare", "-i", str(key), password="mistyped")

        assert mistyped.code == 2, mistyped.err
        assert "the password is wrong" in mistyped.err
        assert differing(mac.snapshot(), before) is None


async def authorize_key(cli: HostCli) -> Path:
    """Authorize a key for the user, like ssh-copy-id."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    folder = f"{host.home('m1')}/.ssh"
    cli.served.mac.files.make_folder(folder, mode=0o700, owner="m1:staff")
    cli.served.mac.files.write(
        f"{folder}/authorized_keys", key.export_public_key(), mode=0o600, owner="m1:staff"
    )
    return cli.file("key", key.export_private_key().decode())
