"""One Mac by hand: looked at, planned, made, killed in the middle, verified, prepared and given back; and whatever is refused."""

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
from bramley.sim.ssh.faults import Do, Fault
from tests.process.bootstrap.by_hand import PASSWORD, Desk, desk
from tests.process.bootstrap.kept import PATIENCE, Running, kept
from tests.process.bootstrap.macs import differing

# Of somebody else, in front of Apple's lines and behind them.
FRONT, BACK = b"# \xff\n\tset skip on lo0   \n", b'\nanchor "others/*"\n'
TART = hashlib.sha256(tart_bundle.archive()).hexdigest()


async def test_a_mac_is_made_killed_in_the_middle_and_given_back(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        mac = at.served.mac
        apple = mac.files.read(host.PF_CONF) or b""
        mac.files.write(host.PF_CONF, FRONT + apple + BACK)
        given = mac.files.read(host.PF_CONF)

        await nothing_is_changed_by_looking(at)
        await die_while_tart_is_brought(at)

        made = await at.wanted("apply", "-o", "json")
        assert made.code == 0, made.err
        assert made.told["changed"]["tart"] > 0
        assert (mac.files.read(host.PF_CONF) or b"").startswith(given or b"?")
        assert mac.state["console"]["user"] == "m1"
        assert not [path for path, _ in mac.files.facts() if "incoming" in path]

        verified = await at.wanted("verify", "-o", "json")
        assert verified.code == 0, verified.out
        assert verified.told["asWanted"] is True
        before, heard = mac.snapshot(), len(at.served.heard)
        again = await at.wanted("apply")
        assert again.code == 0
        assert "was as wanted already; nothing was changed" in again.out
        assert len(at.served.heard) <= heard + 2
        assert differing(mac.snapshot(), before) is None

        shown = await at.host("remove", "--dry-run", "-o", "json")
        assert (shown.code, mac.snapshot()) == (0, before)
        assert shown.told["asWanted"] is False
        removed = await at.host("remove", "--yes", "--no-keep-tart")
        assert removed.code == 0, removed.err
        assert mac.files.read(host.PF_CONF) == given
        assert not mac.files.exists(host.TART_BINARY)
        assert not mac.files.exists(host.STAMPS)


async def nothing_is_changed_by_looking(at: Desk) -> None:
    facts = await at.host("facts", "-o", "json")
    # Its first process has laid out what only a running Mac has.
    before = at.served.mac.snapshot()

    planned = await at.wanted("plan", "-o", "json")
    dry = await at.wanted("apply", "--dry-run")
    verified = await at.wanted("verify", "--skip", "preconditions")

    assert [one.code for one in (facts, planned, dry, verified)] == [0, 0, 0, 1], dry.err
    assert facts.told["host"] == at.target
    assert planned.told["asWanted"] is False
    names = [step["name"] for step in planned.told["steps"]]
    assert names == [name for name in sequence.NAMES if name in names]
    assert "+m1 ALL=(ALL) NOPASSWD: ALL\n" in dry.out
    assert PASSWORD not in dry.out + planned.out
    assert differing(at.served.mac.snapshot(), before) is None
    # What was applied, and what it is like now, are two questions at most.
    assert len(at.served.heard) <= 2 * 4


async def die_while_tart_is_brought(at: Desk) -> None:
    """Kill the manager's process with its stream half-way through."""
    at.served.faults.put(Fault(do=Do.SLOW, match=f"*{TART}*", bytes=20))
    process = await at.start("apply", "-c", str(at.config), password=PASSWORD)
    async with asyncio.timeout(PATIENCE):
        while not any(TART in text for text in at.served.heard):
            assert process.returncode is None, await process.communicate()
            await asyncio.sleep(0.02)
    process.kill()
    await process.communicate()
    at.served.faults.clear()
    assert not at.served.mac.files.exists(host.TART_BUNDLE)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Desk, Running]]:
    """Lend a Mac that these tests leave bare."""
    with kept(lambda: desk(tmp_path_factory.mktemp("desk"))) as both:
        yield both


WRONG_WORDS = [
    pytest.param(["plan", "--only", "firewal"], "no step is called firewal; there are ", id="step"),
    pytest.param(["plan", "--skip", "sudo,tart"], "no step is called sudo,tart", id="steps"),
    pytest.param(["apply", "--patience", "soon"], "--patience", id="patience"),
]


@pytest.mark.parametrize(("words", "told"), WRONG_WORDS)
def test_wrong_words_are_refused_before_the_first_connection(
    shared: tuple[Desk, Running], words: list[str], told: str
) -> None:
    at, run = shared
    heard = len(at.served.heard)

    ended = run(at.wanted(*words))

    assert ended.code == 2
    assert told in ended.err
    assert len(at.served.heard) == heard


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "No such file"),
        ("node: Mac_1\n", "node"),
        ("node: mac-1\nnod: x\n", "nod"),
        ("node: mac-1\nartifacts: {tart: {file: no.tar.gz, version: 2.32.1}}\n", "no.tar.gz"),
        ("node: mac-1\nuser: somebody\n", "is for the user somebody"),
    ],
    ids=["missing", "grammar", "misspelt", "no artifact", "other user"],
)
def test_wrong_files_are_refused_before_the_first_connection(
    shared: tuple[Desk, Running], text: str | None, told: str
) -> None:
    at, run = shared
    heard = len(at.served.heard)
    path = at.folder / "missing.yaml" if text is None else at.file("wrong.yaml", text)

    ended = run(at.host("apply", "-c", str(path)))

    assert ended.code in {1, 2}
    assert told in ended.err
    assert "Traceback" not in ended.err
    assert len(at.served.heard) == heard


def test_a_wrong_password_is_told_and_tried_no_more_than_needed(
    shared: tuple[Desk, Running],
) -> None:
    at, run = shared
    before = at.served.mac.snapshot()

    ended = run(at.host("facts", password="not it"))

    assert ended.code in {1, 2}
    assert "password" in ended.err
    assert "kubeconfig" not in ended.err
    assert "not it" not in ended.err
    assert at.served.mac.snapshot() == before
    with at.served.mac.change() as state:
        assert state["users"]["m1"].pop("wrong_count") <= 2


def test_another_host_key_is_refused_until_it_is_trusted_again(
    shared: tuple[Desk, Running],
) -> None:
    at, run = shared
    assert run(at.host("facts")).code == 0
    at.served.change_host_key()
    heard = len(at.served.heard)

    refused = run(at.host("facts"))
    trusted = run(at.host("facts", "--trust-again"))

    assert refused.code == 2
    assert "host key" in refused.err
    assert "--trust-again" in refused.err
    assert trusted.code == 0, trusted.err
    assert len(at.served.heard) == heard + 1
    assert run(at.host("facts")).code == 0


async def test_a_mac_is_prepared_with_a_password_that_is_right(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        first = await at.host("prepare", "-o", "json")
        assert first.code == 0, first.err
        assert first.told["changed"]["auto-login"] > 0
        mac = at.served.mac
        assert mac.files.read(host.KCPASSWORD) == kcpassword.encode(Secret(PASSWORD))
        assert mac.state["console"]["user"] == "m1"
        # From now on sudo takes any password, and the login is by key.
        key = await own_key(at)
        before = mac.snapshot()

        mistyped = await at.host("prepare", "-i", str(key), password="mistyped")

        assert mistyped.code == 2, mistyped.err
        assert "the password is wrong" in mistyped.err
        assert differing(mac.snapshot(), before) is None


async def own_key(at: Desk) -> Path:
    """Give the user a key, as ssh-copy-id would."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    folder = f"{host.home('m1')}/.ssh"
    at.served.mac.files.make_folder(folder, mode=0o700, owner="m1:staff")
    at.served.mac.files.write(
        f"{folder}/authorized_keys", key.export_public_key(), mode=0o600, owner="m1:staff"
    )
    return at.file("key", key.export_private_key().decode())
