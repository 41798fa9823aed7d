"""The agent's kubeconfig: closed to others, written when it leads elsewhere or ends soon, and never read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import converge
from bramley.host.steps.kubeconfig import Kubeconfig
from bramley.sim.macos.connection import ModelConnection
from tests.unit.host.steps import wanted
from tests.unit.host.steps.wanted import BORN, DAY, NODE

FILE = "/etc/tart-kubelet/kubeconfig"


def step(content: Secret | None = None) -> Kubeconfig:
    return Kubeconfig(content or wanted.identity(), NODE, "m1")


def content(line: ModelConnection) -> str:
    return (line.mac.files.read(FILE) or b"").decode()


async def test_only_the_user_may_read_it(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)

    await converge.apply(line, [step()])

    assert content(line) == wanted.identity().reveal()
    assert (line.mac.files.mode(FILE), line.mac.files.owner(FILE)) == (0o600, "m1:staff")


async def test_nothing_else_holds_its_secret_and_no_look_asks_for_it(tmp_path: Path) -> None:
    canary = "Y2FuYXJ5LW9mLXRoZS10b2tlbg"
    line = await wanted.mac(tmp_path, step(wanted.identity(signature=canary)))

    facts = await line.probe(step().probes())

    assert canary not in repr(facts)
    holders = [path for path in line.mac.root.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()]  # fmt: skip
    assert [path.name for path in holders] == ["kubeconfig"]
    assert canary not in repr(step(wanted.identity(signature=canary)))


async def test_another_token_alone_is_no_reason_to_write(tmp_path: Path) -> None:
    """The agent has renewed its own meanwhile."""
    line = await wanted.mac(tmp_path, step())

    await converge.apply(line, [step(wanted.identity(born=BORN + DAY // 2))])

    assert line.done == []


@pytest.mark.parametrize(
    "other",
    [
        wanted.identity(server="https://other.example"),
        wanted.identity(authority="another authority"),
        wanted.identity(born=BORN + DAY * 9 // 10),
        wanted.identity(born=BORN + DAY * 3),
    ],
    ids=["server", "authority", "ends-soon", "ended"],
)
async def test_another_way_or_a_token_near_its_end_is_one(tmp_path: Path, other: Secret) -> None:
    line = await wanted.mac(tmp_path, step())

    await converge.apply(line, [step(other)])

    assert content(line) == other.reveal()


@pytest.mark.parametrize("change", ["content", "mode", "owner", "note"])
async def test_what_somebody_changed_is_put_right(tmp_path: Path, change: str) -> None:
    line = await wanted.mac(tmp_path, step())
    files = line.mac.files
    if change == "content":
        files.write(FILE, b"other", mode=0o600, owner="m1:staff")
    elif change == "mode":
        files.at(FILE).chmod(0o644)
    elif change == "owner":
        files.own(FILE, "root:wheel")
    else:
        files.write("/var/db/tart-kubelet/kubeconfig.json", b"{")

    await converge.apply(line, [step()])

    assert content(line) == wanted.identity().reveal()
    assert (files.mode(FILE), files.owner(FILE)) == (0o600, "m1:staff")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (wanted.identity(ends=0), "never ends"),
        (wanted.identity(node="mac-02"), "is that of the Node mac-02, and this one is mac-01"),
        (wanted.identity(server="http://api.example"), "prove who it is"),
        (Secret("users: [canary"), "is not valid YAML"),
        (Secret("{}"), "current-context"),
    ],
    ids=["endless", "other-node", "plain-http", "no-yaml", "empty"],
)
def test_what_an_agent_must_not_have_is_refused_before_any_connection(
    wrong: Secret, why: str
) -> None:
    with pytest.raises(BadConfiguration, match=why) as caught:
        step(wrong)

    assert "canary" not in str(caught.value)


async def test_a_credential_that_says_nothing_of_itself_is_compared_whole(tmp_path: Path) -> None:
    opaque = wanted.identity().reveal().replace("eyJhbGciOiJub25lIn0.", "opaque-")
    line = await wanted.mac(tmp_path, step(Secret(opaque)))

    await converge.apply(line, [step(Secret(opaque))])
    assert line.done == []
    newer = opaque.replace("opaque-", "newer-")
    await converge.apply(line, [step(Secret(newer))])

    assert content(line) == newer
