"""Targets and step selection of `bramley host`, and what is refused before the first connection."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import jwt
import pytest

from bramley.access import kubeconfig
from bramley.app import agent_access, hosts
from bramley.app.ssh_options import SshOptions, parse_target
from bramley.base.errors import BadConfiguration, HostUnreachable, InvalidSpec
from bramley.base.secret import Secret
from bramley.host import sequence
from bramley.host.agent_daemon import AgentJob
from bramley.host.artifacts import Artifact
from bramley.host.spec import Builder, MacSpec, Tailnet
from bramley.kube.tls import Trust


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.5", ("m1", "10.0.0.5", 22)),
        ("admin@mac-1.example.com", ("admin", "mac-1.example.com", 22)),
        ("m1@127.0.0.1:2222", ("m1", "127.0.0.1", 2222)),
        ("m1@[FE80::1]:22", ("m1", "fe80::1", 22)),
        ("MAC-1.Example.com", ("m1", "mac-1.example.com", 22)),
        ("m1@mac-1.example.com.:2222", ("m1", "mac-1.example.com", 2222)),
    ],
)
def test_target_has_user_host_and_port(text: str, expected: tuple[str, str, int]) -> None:
    assert parse_target(text, user="m1") == expected


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
def test_invalid_target_is_refused(text: str) -> None:
    with pytest.raises((BadConfiguration, InvalidSpec)):
        parse_target(text, user="m1")


def artifact(name: str) -> Artifact:
    return Artifact(name=name, version="1.0.0", path=Path(name), size=1, sha256="0" * 64)


def agent_kubeconfig() -> Secret:
    claims = {"sub": "system:serviceaccount:a:b", "iat": 1_000, "exp": 90_000}
    token = Secret(jwt.encode(claims, "k" * 32, algorithm="HS256"))
    return kubeconfig.render("mac-1", token, server="https://127.0.0.1:6443", trust=Trust())


def complete_spec() -> MacSpec:
    job = AgentJob(node_name="mac-1", host_cpu=8, host_memory_mb=1024, max_pods=2, on_tailnet=True)
    return MacSpec(
        job=job,
        kubeconfig=agent_kubeconfig(),
        client_authority=b"authority",
        registry_credentials=Secret('{"auths": {"a": {"username": "b", "password": "c"}}}'),
        tart=artifact("tart"),
        interpreter=artifact("interpreter"),
        agent=artifact("agent"),
        node_exporter=artifact("node_exporter"),
        tailnet=Tailnet(binaries=artifact("tailscale"), auth_key=Secret("tskey-auth-x")),
        builder=Builder(organisation="a", labels=("b",), archive=artifact("runner")),
    )


def test_step_names_have_the_order_of_the_steps() -> None:
    assert tuple(step.name for step in sequence.steps(complete_spec())) == sequence.NAMES


def test_selected_steps_keep_their_order() -> None:
    steps = sequence.steps(complete_spec())
    only = sequence.select(steps, only=["firewall", "sudo", "agent"], skip=["sudo"])
    assert [step.name for step in only] == ["firewall", "agent"]


def test_unknown_step_is_refused_with_all_names() -> None:
    with pytest.raises(
        BadConfiguration, match=r"unknown step firewal; the steps are preconditions, sudo"
    ):
        sequence.select([], only=["firewal"], skip=[])


@pytest.mark.real_time
async def test_run_without_the_kubeconfig_step_needs_no_cluster_and_uses_the_configured_user(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mac.yaml"
    file.write_text("node: mac-1\nuser: admin\n")
    ssh_options = SshOptions(
        target="127.0.0.1:1",
        user="m1",
        known_hosts=tmp_path / "known_hosts",
        password=Secret("canary"),
        connect_timeout=timedelta(0),
    )
    missing_cluster = agent_access.Cluster(kubeconfig=tmp_path / "none")
    options = hosts.ApplyOptions(config=file, only=("firewall",), cluster=missing_cluster)
    with pytest.raises(HostUnreachable, match=r"^admin@127\.0\.0\.1:1: "):
        await hosts.apply(ssh_options, options, lambda _: None)


@pytest.mark.parametrize(
    ("more", "password", "why"),
    [
        ("publicKeys: [nonsense]", "canary", r"mac.yaml: publicKeys\[0\] is not a valid line"),
        (
            "egress: {cacheNetwork: nowhere}",
            "canary",
            "mac.yaml: egress.cacheNetwork 'nowhere' must be",
        ),
        ("", "", "no credentials"),
        ("", "canary", "/cluster"),
    ],
)
async def test_identity_is_requested_after_all_other_checks(
    more: str, password: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "mac.yaml").write_text(f"node: mac-1\n{more}\n")
    ssh_options = SshOptions(
        target="127.0.0.1:1",
        user="m1",
        known_hosts=tmp_path / "known_hosts",
        password=Secret(password) if password else None,
    )
    missing_cluster = agent_access.Cluster(kubeconfig=tmp_path / "cluster")
    options = hosts.ApplyOptions(config=tmp_path / "mac.yaml", cluster=missing_cluster)

    with pytest.raises((BadConfiguration, InvalidSpec), match=why):
        await hosts.apply(ssh_options, options, lambda _: None)


def test_host_key_advice_differs_for_mac_and_jump_host(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("canary")
    ssh_options = SshOptions(
        target="mac",
        user="m1",
        known_hosts=tmp_path / "known_hosts",
        identities=(key,),
        jump="jump-host",
    )
    target = ssh_options.build_target()
    assert target.jump

    assert target.host_keys.advice("mac", 22) == "run this once with --accept-new-host-key"
    assert "ssh-keygen -R jump-host" in target.jump.host_keys.advice("jump-host", 22)


@pytest.mark.real_time
async def test_unreachable_mac_leaves_nothing_in_the_cluster(tmp_path: Path) -> None:
    requests = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(writer)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        token = Secret("canary")
        content = kubeconfig.render("me", token, server=f"http://127.0.0.1:{port}", trust=Trust())
        (tmp_path / "cluster").write_text(content.reveal())
        (tmp_path / "mac.yaml").write_text("node: mac-1\n")
        ssh_options = SshOptions(
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

    assert requests == []


@pytest.mark.real_time
async def test_host_key_of_an_unreachable_mac_is_kept(tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("[127.0.0.1]:1 ssh-ed25519 AAAA\n")
    ssh_options = SshOptions(
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


def test_default_private_key_may_be_unreadable(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("a key")
    bad.write_bytes(b"\xff")
    ssh_options = SshOptions(
        target="mac-1", user="m1", known_hosts=tmp_path / "known_hosts", identities=(bad, good)
    )
    with pytest.raises(BadConfiguration, match="is not a private key"):
        ssh_options.private_keys()
    assert replace(ssh_options, are_explicit=False).private_keys() == (Secret("a key"),)


def test_removal_steps_are_selected_by_name() -> None:
    def names(**options: tuple[str, ...]) -> list[str]:
        return [step.name for step in hosts.RemovalOptions(**options).steps("m1")]  # type: ignore[arg-type]

    assert names(only=("firewall", "stamps")) == ["firewall", "stamps"]
    assert names(skip=("tart", "sudo"))[-1] == "auto-login"
    with pytest.raises(BadConfiguration, match=r"unknown step sleep; the steps are actions-runner"):
        names(only=("sleep",))


@pytest.mark.real_time
async def test_password_is_not_sent_to_the_jump_host(tmp_path: Path) -> None:
    ssh_options = SshOptions(
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
async def test_empty_selection_is_refused(
    only: tuple[str, ...], skip: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "mac.yaml").write_text("node: mac-1\n")
    ssh_options = SshOptions(target="m1@127.0.0.1:1", user="m1", known_hosts=tmp_path / "known")
    options = hosts.ApplyOptions(config=tmp_path / "mac.yaml", only=only, skip=skip)

    with pytest.raises(
        BadConfiguration, match=r"--only and --skip select none of the steps of .*mac.yaml"
    ):
        await hosts.plan(ssh_options, options)


async def test_missing_credentials_are_reported_with_the_flags(tmp_path: Path) -> None:
    ssh_options = SshOptions(target="m1@127.0.0.1:1", user="m1", known_hosts=tmp_path / "known")

    with pytest.raises(BadConfiguration, match=r"m1@127.0.0.1:1: .*--identity.*--ask-password"):
        await hosts.facts(ssh_options)


def test_preparation_has_two_steps_and_refuses_other_names() -> None:
    both = hosts.PreparationOptions(password=Secret("canary"))
    assert [step.name for step in both.steps("m1")] == ["sudo", "auto-login"]
    one = hosts.PreparationOptions(password=Secret("canary"), skip=("sudo",))
    assert [step.name for step in one.steps("m1")] == ["auto-login"]
    assert "canary" not in repr(both)
    with pytest.raises(BadConfiguration, match="the steps are sudo, auto-login"):
        hosts.PreparationOptions(password=Secret("canary"), only=("firewall",)).steps("m1")


def test_empty_selection_of_preparation_or_removal_is_refused() -> None:
    none = hosts.PreparationOptions(password=Secret("canary"), skip=("sudo", "auto-login"))
    with pytest.raises(BadConfiguration, match=r"select none of the steps sudo, auto-login$"):
        none.steps("m1")
    # Tart is kept by default.
    with pytest.raises(
        BadConfiguration, match=r"select none of the steps actions-runner, [\w, -]*stamps"
    ):
        hosts.RemovalOptions(only=("tart",)).steps("m1")
    (tart,) = hosts.RemovalOptions(only=("tart",), keep_tart=False).steps("m1")
    assert tart.name == "tart"


async def test_artifacts_respect_the_bandwidth_limit(tmp_path: Path) -> None:
    (tmp_path / "tart").write_bytes(bytes(3_000_000))
    store = hosts.artifact_store(hosts.ApplyOptions(config=tmp_path, megabytes_per_second=1))
    artifact = await store.load(tmp_path / "tart", name="tart", version="1.0.0")
    loop = asyncio.get_running_loop()
    started = loop.time()

    async with store.open(artifact) as reading:
        assert sum([len(block) async for block in reading.blocks()]) == 3_000_000

    assert loop.time() - started > 2
