"""The agent's kubeconfig: private, written if the server, user or authority differ or the token expires soon, and never read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import converge
from bramley.host.steps.kubeconfig import Kubeconfig
from bramley.sim.macos.connection import ModelConnection
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.fixtures import DAY, ISSUED, NODE

FILE = "/etc/tart-kubelet/kubeconfig"


def step(content: Secret | None = None) -> Kubeconfig:
    return Kubeconfig(content or fixtures.agent_kubeconfig(), NODE, "m1")


def content(connection: ModelConnection) -> str:
    return (connection.mac.files.read(FILE) or b"").decode()


async def test_file_is_readable_by_the_user_only(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)

    await converge.apply(connection, [step()])

    assert content(connection) == fixtures.agent_kubeconfig().reveal()
    assert (connection.mac.files.mode(FILE), connection.mac.files.owner(FILE)) == (
        0o600,
        "m1:staff",
    )


async def test_secret_is_in_no_other_file_and_in_no_answer(tmp_path: Path) -> None:
    canary = "Y2FuYXJ5LW9mLXRoZS10b2tlbg"
    connection = await fixtures.mac(tmp_path, step(fixtures.agent_kubeconfig(signature=canary)))

    facts = await connection.probe(step().probes())

    assert canary not in repr(facts)
    holders = [path for path in connection.mac.root.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()]  # fmt: skip
    assert [path.name for path in holders] == ["kubeconfig"]
    assert canary not in repr(step(fixtures.agent_kubeconfig(signature=canary)))


async def test_another_token_alone_does_not_write_the_file(tmp_path: Path) -> None:
    """The agent has renewed its token since."""
    connection = await fixtures.mac(tmp_path, step())

    await converge.apply(connection, [step(fixtures.agent_kubeconfig(issued=ISSUED + DAY // 2))])

    assert connection.done == []


@pytest.mark.parametrize(
    "other",
    [
        fixtures.agent_kubeconfig(server="https://other.example"),
        fixtures.agent_kubeconfig(authority="another authority"),
        fixtures.agent_kubeconfig(issued=ISSUED + DAY * 9 // 10),
        fixtures.agent_kubeconfig(issued=ISSUED + DAY * 3),
    ],
    ids=["server", "authority", "expires-soon", "expired"],
)
async def test_another_server_or_an_expiring_token_writes_the_file(
    tmp_path: Path, other: Secret
) -> None:
    connection = await fixtures.mac(tmp_path, step())

    await converge.apply(connection, [step(other)])

    assert content(connection) == other.reveal()


@pytest.mark.parametrize("change", ["content", "mode", "owner", "note"])
async def test_foreign_change_is_reverted(tmp_path: Path, change: str) -> None:
    connection = await fixtures.mac(tmp_path, step())
    files = connection.mac.files
    if change == "content":
        files.write(FILE, b"other", mode=0o600, owner="m1:staff")
    elif change == "mode":
        files.at(FILE).chmod(0o644)
    elif change == "owner":
        files.chown(FILE, "root:wheel")
    else:
        files.write("/var/db/tart-kubelet/kubeconfig.json", b"{")

    await converge.apply(connection, [step()])

    assert content(connection) == fixtures.agent_kubeconfig().reveal()
    assert (files.mode(FILE), files.owner(FILE)) == (0o600, "m1:staff")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (fixtures.agent_kubeconfig(expires=0), "does not expire"),
        (
            fixtures.agent_kubeconfig(node="mac-02"),
            "is for the Node mac-02, and this one is mac-01",
        ),
        (
            fixtures.agent_kubeconfig(server="http://api.example"),
            "no HTTPS server whose certificate is verified",
        ),
        (Secret("users: [canary"), "is not valid YAML"),
        (Secret("{}"), "current-context"),
    ],
    ids=["no-expiry", "other-node", "plain-http", "no-yaml", "empty"],
)
def test_unsuitable_kubeconfig_is_refused_before_any_connection(wrong: Secret, why: str) -> None:
    with pytest.raises(BadConfiguration, match=why) as caught:
        step(wrong)

    assert "canary" not in str(caught.value)


async def test_opaque_credential_is_compared_as_a_whole(tmp_path: Path) -> None:
    opaque = fixtures.agent_kubeconfig().reveal().replace("eyJhbGciOiJub25lIn0.", "opaque-")
    connection = await fixtures.mac(tmp_path, step(Secret(opaque)))

    await converge.apply(connection, [step(Secret(opaque))])
    assert connection.done == []
    newer = opaque.replace("opaque-", "newer-")
    await converge.apply(connection, [step(Secret(newer))])

    assert content(connection) == newer
