"""Targets and chosen steps of `bramley host`: what is understood, and what is refused before anything is dialled."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import jwt
import pytest

from bramley.access import kubeconfig
from bramley.app import agent_access, host_choices, hosts
from bramley.base.errors import BadConfiguration, HostUnreachable, InvalidSpec
from bramley.base.secret import Secret
from bramley.host import sequence
from bramley.host.agent_daemon import AgentJob
from bramley.host.artifacts import Artifact
from bramley.host.spec import MacSpec, Tailnet
from bramley.kube.tls import Trust


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("10.0.0.5", ("m1", "10.0.0.5", 22)),
        ("admin@mac-1.example.com", ("admin", "mac-1.example.com", 22)),
        ("m1@127.0.0.1:2222", ("m1", "127.0.0.1", 2222)),
        ("m1@[FE80::1]:22", ("m1", "fe80::1", 22)),
        ("MAC-1.Example.com", ("m1", "mac-1.example.com", 22)),
        ("m1@mac-1.example.com.:2222", ("m1", "mac-1.example.com", 2222)),
    ],
)
def test_a_target_is_a_user_a_host_and_a_port(text: str, meant: tuple[str, str, int]) -> None:
    assert hosts.parse_target(text, user="m1") == meant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m1@",
        "@host",
        "m1@host:",
        "m1@host:0",
        "m1@host:70000",
        "m1@-oProxyCommand=x",
        "a b@host",
        "m1@fe80::1",
        "m1@ho$t",
        "m1@host..",
        "m1@.",
    ],
)
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises((BadConfiguration, InvalidSpec)):
        hosts.parse_target(text, user="m1")


def artifact(name: str) -> Artifact:
    return Artifact(name=name, version="1.0.0", path=Path(name), size=1, sha256="0" * 64)


def way_in() -> Secret:
    claims = {"sub": "system:serviceaccount:a:b", "iat": 1_000, "exp": 90_000}
    token = Secret(jwt.encode(claims, "k" * 32, algorithm="HS256"))
    return kubeconfig.render("mac-1", token, server="https://127.0.0.1:6443", trust=Trust())


def whole() -> MacSpec:
    job = AgentJob(node_name="mac-1", host_cpu=8, host_memory_mb=1024, max_pods=2, on_tailnet=True)
    return MacSpec(
        job=job,
        kubeconfig=way_in(),
        client_authority=b"authority",
        tart=artifact("tart"),
        interpreter=artifact("interpreter"),
        agent=artifact("agent"),
        node_exporter=artifact("node_exporter"),
        tailnet=Tailnet(binaries=artifact("tailscale"), auth_key=Secret("tskey-auth-x")),
    )


def test_the_names_of_steps_are_those_of_a_whole_specification_in_order() -> None:
    assert tuple(step.name for step in sequence.steps(whole())) == sequence.NAMES


def test_steps_are_chosen_and_left_out_by_name_and_keep_their_order() -> None:
    steps = sequence.steps(whole())
    only = host_choices.chosen(steps, only=["firewall", "sudo", "agent"], skip=["sudo"])
    assert [step.name for step in only] == ["firewall", "agent"]


def test_a_name_that_no_step_has_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(
        BadConfiguration, match=r"no step is called firewal; there are preconditions, sudo"
    ):
        host_choices.chosen([], only=["firewal"], skip=[])


@pytest.mark.real_time
async def test_a_run_without_the_kubeconfig_asks_no_cluster_and_dials_as_the_files_user(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mac.yaml"
    file.write_text("node: mac-1\nuser: admin\n")
    ssh_options = hosts.SshOptions(
        target="127.0.0.1:1",
        user="m1",
        known_hosts=tmp_path / "known_hosts",
        password=Secret("canary"),
        connect_timeout=timedelta(0),
    )
    nowhere = agent_access.Cluster(kubeconfig=tmp_path / "none")
    options = hosts.ApplyOptions(config=file, only=("firewall",), cluster=nowhere)
    with pytest.raises(HostUnreachable, match=r"^admin@127\.0\.0\.1:1: "):
        await hosts.apply(ssh_options, options, lambda _: None)


@pytest.mark.parametrize(
    ("more", "password", "why"),
    [
        ("publicKeys: [nonsense]", "canary", r"mac.yaml: publicKeys\[0\] is no line"),
        (
            "egress: {cacheNetwork: nowhere}",
            "canary",
            "mac.yaml: egress.cacheNetwork 'nowhere' must be",
        ),
        ("", "", "nothing to log in with"),
        ("", "canary", "/cluster"),
    ],
)
async def test_a_cluster_is_asked_for_an_identity_when_all_else_is_right(
    more: str, password: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "mac.yaml").write_text(f"node: mac-1\n{more}\n")
    ssh_options = hosts.SshOptions(
        target="127.0.0.1:1",
        user="m1",
        known_hosts=tmp_path / "known_hosts",
        password=Secret(password) if password else None,
    )
    nowhere = agent_access.Cluster(kubeconfig=tmp_path / "cluster")
    options = hosts.ApplyOptions(config=tmp_path / "mac.yaml", cluster=nowhere)

    with pytest.raises((BadConfiguration, InvalidSpec), match=why):
        await hosts.apply(ssh_options, options, lambda _: None)


def test_another_host_key_has_one_remedy_which_is_of_the_mac_alone(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("canary")
    ssh_options = hosts.SshOptions(
        target="mac",
        user="m1",
        known_hosts=tmp_path / "known_hosts",
        identities=(key,),
        jump="between",
    )
    target = hosts._target(ssh_options)
    assert target.through

    assert target.host_keys.advice("mac", 22) == "give --trust-again once"
    assert "ssh-keygen -R between" in target.through.host_keys.advice("between", 22)


@pytest.mark.real_time
async def test_a_mac_that_is_out_of_reach_leaves_nothing_in_the_cluster(tmp_path: Path) -> None:
    asked = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        token = Secret("canary")
        content = kubeconfig.render("me", token, server=f"http://127.0.0.1:{port}", trust=Trust())
        (tmp_path / "cluster").write_text(content.reveal())
        (tmp_path / "mac.yaml").write_text("node: mac-1\n")
        ssh_options = hosts.SshOptions(
            target="127.0.0.1:1",
            user="m1",
            known_hosts=tmp_path / "known_hosts",
            password=Secret("canary"),
            connect_timeout=timedelta(0),
        )
        cluster = agent_access.Cluster(kubeconfig=tmp_path / "cluster")
        options = hosts.ApplyOptions(config=tmp_path / "mac.yaml", cluster=cluster)
        with pytest.raises(HostUnreachable):
            await hosts.apply(ssh_options, options, lambda _: None)

    assert asked == []


@pytest.mark.real_time
async def test_the_known_key_of_a_mac_that_does_not_answer_is_kept(tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("[127.0.0.1]:1 ssh-ed25519 AAAA\n")
    ssh_options = hosts.SshOptions(
        target="m1@127.0.0.1:1",
        user="m1",
        known_hosts=known,
        password=Secret("canary"),
        accept_new_host_key=True,
        connect_timeout=timedelta(0),
    )

    with pytest.raises(HostUnreachable):
        await hosts.facts(ssh_options)

    assert known.read_text() == "[127.0.0.1]:1 ssh-ed25519 AAAA\n"


def test_a_key_that_nobody_chose_may_be_unreadable(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("a key")
    bad.write_bytes(b"\xff")
    ssh_options = hosts.SshOptions(
        target="mac-1", user="m1", known_hosts=tmp_path / "known_hosts", identities=(bad, good)
    )
    with pytest.raises(BadConfiguration, match="no private key"):
        hosts.private_keys(ssh_options)
    assert hosts.private_keys(replace(ssh_options, are_explicit=False)) == (Secret("a key"),)


def test_what_is_taken_away_is_chosen_by_name_too() -> None:
    def names(**given: tuple[str, ...]) -> list[str]:
        return [step.name for step in hosts.RemovalOptions(**given).steps("m1")]  # type: ignore[arg-type]

    assert names(only=("firewall", "stamps")) == ["firewall", "stamps"]
    assert names(skip=("tart", "sudo"))[-1] == "auto-login"
    with pytest.raises(BadConfiguration, match=r"no step is called sleep; there are agent-job"):
        names(only=("sleep",))


@pytest.mark.real_time
async def test_the_password_of_a_mac_is_not_told_to_the_host_on_the_way(tmp_path: Path) -> None:
    ssh_options = hosts.SshOptions(
        target="127.0.0.1:1",
        user="m1",
        known_hosts=tmp_path / "known_hosts",
        password=Secret("canary"),
        jump="127.0.0.1:1",
        connect_timeout=timedelta(0),
    )
    with pytest.raises(BadConfiguration, match="--jump needs a key"):
        await hosts.facts(ssh_options)


@pytest.mark.parametrize(("only", "skip"), [(("sleep",), ("sleep",)), (("tailscale",), ())])
async def test_a_choice_that_leaves_no_step_is_refused_and_not_told_as_fine(
    only: tuple[str, ...], skip: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "mac.yaml").write_text("node: mac-1\n")
    ssh_options = hosts.SshOptions(target="m1@127.0.0.1:1", user="m1", known_hosts=tmp_path / "known")
    options = hosts.ApplyOptions(config=tmp_path / "mac.yaml", only=only, skip=skip)

    with pytest.raises(
        BadConfiguration, match=r"--only and --skip leave nothing of what .*mac.yaml"
    ):
        await hosts.plan(ssh_options, options)


async def test_who_has_nothing_to_log_in_with_is_told_what_to_give(tmp_path: Path) -> None:
    ssh_options = hosts.SshOptions(target="m1@127.0.0.1:1", user="m1", known_hosts=tmp_path / "known")

    with pytest.raises(BadConfiguration, match=r"m1@127.0.0.1:1: .*--identity.*--ask-password"):
        await hosts.facts(ssh_options)


def test_a_preparation_has_two_steps_and_takes_no_other_name() -> None:
    whole = hosts.PreparationOptions(password=Secret("canary"))
    assert [step.name for step in whole.steps("m1")] == ["sudo", "auto-login"]
    one = hosts.PreparationOptions(password=Secret("canary"), skip=("sudo",))
    assert [step.name for step in one.steps("m1")] == ["auto-login"]
    assert "canary" not in repr(whole)
    with pytest.raises(BadConfiguration, match="there are sudo, auto-login"):
        hosts.PreparationOptions(password=Secret("canary"), only=("firewall",)).steps("m1")


def test_a_preparation_or_a_leave_of_nothing_is_refused_and_not_told_as_fine() -> None:
    none = hosts.PreparationOptions(password=Secret("canary"), skip=("sudo", "auto-login"))
    with pytest.raises(BadConfiguration, match=r"leave nothing to do of sudo, auto-login$"):
        none.steps("m1")
    # It stays by default.
    with pytest.raises(BadConfiguration, match=r"leave nothing to do of agent-job, [\w, -]*stamps"):
        hosts.RemovalOptions(only=("tart",)).steps("m1")
    (tart,) = hosts.RemovalOptions(only=("tart",), keep_tart=False).steps("m1")
    assert tart.name == "tart"


async def test_artifacts_take_no_more_of_the_line_than_was_said(tmp_path: Path) -> None:
    (tmp_path / "tart").write_bytes(bytes(3_000_000))
    store = hosts.artifact_store(hosts.ApplyOptions(config=tmp_path, megabytes_per_second=1))
    brought = await store.load(tmp_path / "tart", name="tart", version="1.0.0")
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async with store.open(brought) as reading:
        assert sum([len(block) async for block in reading.blocks()]) == 3_000_000

    assert loop.time() - begun > 2
