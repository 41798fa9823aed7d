"""`bramley agent-access` against a running embedded server."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bramley.api.core import Node, ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.base import errors
from bramley.kube import config_loader
from tests.contract.kube_client.targets import serving
from tests.programs import run_program

PROGRAM = "from bramley.cli.main import main; main()"


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with serving(tmp_path_factory.mktemp("agent-access")) as kubeconfig:
        yield kubeconfig


def call(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_program(
        [sys.executable, "-c", PROGRAM, "agent-access", *map(str, arguments)],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
    )
    assert done.returncode == code, done.stderr
    return done


async def register(kubeconfig: Path, node: str) -> None:
    async with config_loader.connect(kubeconfig, environment={}) as kube:
        await kube.create(Node(metadata=ObjectMeta(name=node)))


async def refusal(kubeconfig: Path, node: str) -> type[Exception] | None:
    async with config_loader.connect(kubeconfig, environment={}) as kube:
        try:
            await kube.get(Node, node)
        except errors.Refused as error:
            return type(error)
    return None


async def test_an_agent_identity_is_created_works_and_is_revoked(
    admin: Path, tmp_path: Path
) -> None:
    own = tmp_path / "mac-1.kubeconfig"

    output = call("create", "mac-1", "--kubeconfig", admin, "--out", own).stdout
    await register(own, "mac-1")
    shown = json.loads(
        call("create", "mac-1", "--kubeconfig", admin, "--out", own, "-o", "json").stdout
    )

    assert "the token is valid until" in output
    assert shown["file"] == str(own)
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert await refusal(own, "mac-1") is None
    assert await refusal(own, "mac-2") is errors.Forbidden

    assert "Revoked the agent" in call("revoke", "mac-1", "--kubeconfig", admin).stdout
    assert await refusal(own, "mac-1") is errors.Unauthorized
    assert "has no agent identity" in call("revoke", "mac-1", "--kubeconfig", admin).stdout
    again = call("revoke", "mac-1", "--kubeconfig", admin, "-o", "json").stdout
    assert json.loads(again) == {"node": "mac-1", "revoked": False}


def test_without_a_file_the_kubeconfig_is_printed(admin: Path) -> None:
    printed: dict[str, Any] = json.loads(call("create", "mac-3", "--kubeconfig", admin).stdout)
    summary = json.loads(call("create", "mac-3", "--kubeconfig", admin, "-o", "json").stdout)

    assert printed["users"][0]["name"] == "tart-kubelet-mac-3"
    assert json.loads(summary["kubeconfig"])["clusters"] == printed["clusters"]


def test_the_agent_gets_the_address_that_it_can_reach(admin: Path) -> None:
    server = "https://api.example.com:6443"

    printed = call("create", "mac-4", "--kubeconfig", admin, "--server", server).stdout

    assert json.loads(printed)["clusters"][0]["cluster"]["server"] == server


async def test_labels_and_taints_of_the_node_are_recorded(admin: Path) -> None:
    flags = ("--node-labels", "zone=par-1", "--register-taints", "tuist.dev/new:NoSchedule")

    call("create", "mac-6", "--kubeconfig", admin, *flags)
    output = call("create", "mac-6", "--kubeconfig", admin, "--node-labels", "zone", code=2).stderr

    assert "'zone' is not key=value" in output
    async with config_loader.connect(admin, environment={}) as kube:
        found = await kube.get(ServiceAccount, "tart-kubelet-mac-6", namespace="bramley-agents")
    assert found.metadata.annotations["tuist.dev/node-labels"] == "zone=par-1"
    assert found.metadata.annotations["tuist.dev/register-taints"] == "tuist.dev/new:NoSchedule"


def test_a_foreign_file_is_not_overwritten(admin: Path, tmp_path: Path) -> None:
    precious = tmp_path / "config"
    precious.write_text("apiVersion: v1\n")

    output = call("create", "mac-5", "--kubeconfig", admin, "--out", precious, code=2).stderr

    assert "is not an agent's kubeconfig" in output
    assert precious.read_text() == "apiVersion: v1\n"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("create", "Mac_1"), "is not a valid node name"),
        (("create", "mac-1", "--token-lifetime", "soon"), "write it like 30s"),
        (("create", "mac-1", "--token-lifetime", "5m"), "at least 10 minutes"),
        (("create", "mac-1", "--token-lifetime", "99999999999999d"), "too long"),
        (("create", "mac-1", "--server", "api"), "write it as https://"),
        (("revoke", "Mac_1"), "is not a valid node name"),
    ],
)
def test_errors_are_one_line(admin: Path, arguments: tuple[str, ...], word: str) -> None:
    output = call(*arguments, "--kubeconfig", admin, code=2).stderr

    assert word in output
    assert output.count("\n") == 1


def test_the_shared_objects_are_printed_for_kubectl() -> None:
    listed = json.loads(call("policy", "-o", "json").stdout)

    assert [one["kind"] for one in listed["items"]] == [
        "Namespace",
        "ClusterRole",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
