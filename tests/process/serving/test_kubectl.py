"""kubectl on a real server, and the commands that `bramley up` prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bramley.api import crds
from tests.process.serving.processes import Bramley, running, until
from tests.process.threaded import in_a_thread
from tests.programs import run_program

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = pytest.mark.tier("cluster")  # kubectl is built with the real control plane


class Kubectl:
    """kubectl with the kubeconfig that the server wrote."""

    def __init__(self, program: Path, server: Bramley) -> None:
        # A separate discovery cache: another server may have used this port before.
        cache = server.folder.parent / "kube-cache"
        self._command = [str(program), f"--kubeconfig={server.kubeconfig}", f"--cache-dir={cache}"]

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        done = run_program([*self._command, *arguments], input=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def streaming(self, *arguments: str, into: Path) -> Iterator[None]:
        with (
            into.open("wb") as out,
            subprocess.Popen([*self._command, *arguments], stdout=out) as p,
        ):
            try:
                yield
            finally:
                p.terminate()


@in_a_thread
def test_session_with_kubectl(tmp_path: Path, kubectl: Path) -> None:
    with running(tmp_path) as server:
        run = Kubectl(kubectl, server)

        assert json.loads(run("get", "--raw", "/api"))["versions"] == ["v1"]
        namespaces = json.loads(run("get", "ns", "-o", "json"))["items"]
        assert "default" in {one["metadata"]["name"] for one in namespaces}

        config_map = str(EXAMPLES / "configmap.yaml")
        assert "created" in run("apply", "-f", config_map)
        assert "created" in run("apply", "-f", "-", stdin=crds.as_yaml(crds.manifests()))
        pool = str(EXAMPLES / "runnerpool.yaml")
        assert "created" in run("apply", "-f", pool)
        assert "unchanged" in run("apply", "-f", pool)

        seen = tmp_path / "seen"
        with run.streaming("get", "runnerpools", "-w", "-o", "json", into=seen):
            until(lambda: '"macos"' in seen.read_text())
            run("patch", "runnerpool", "macos", "--type", "merge", "-p", '{"spec":{"replicas":7}}')
            until(lambda: '"replicas": 7' in seen.read_text())
        got = json.loads(run("get", "runnerpool", "macos", "-o", "json"))
        assert got["spec"]["replicas"] == 7

        assert "deleted" in run("delete", "runnerpool", "macos")
        assert json.loads(run("get", "runnerpools", "-o", "json"))["items"] == []


@in_a_thread
def test_kubectl_shows_the_reason_of_a_refusal(tmp_path: Path, kubectl: Path) -> None:
    with running(tmp_path) as server:
        run = Kubectl(kubectl, server)
        run("apply", "-f", "-", stdin=crds.as_yaml(crds.manifests()))
        pool = (EXAMPLES / "runnerpool.yaml").read_text()
        broken = re.sub(r"replicas: \d+", "replicas: -2", pool)

        with pytest.raises(AssertionError, match=r"spec.replicas.*greater than or equal to 0"):
            run("apply", "-f", "-", stdin=broken)


@in_a_thread
def test_commands_that_up_prints_work_in_their_order(tmp_path: Path, kubectl: Path) -> None:
    with running(tmp_path, "--macs", "1", command="up") as server:
        until(lambda: "Ctrl-C" in server.out.read_text())
        printed = server.out.read_text().partition("Try in a second terminal:\n")[2]
        commands = [line for line in printed.splitlines() if line.startswith("  ")]
        # More time than a user needs, for a busy machine.
        wide = ["echo WIDE", "kubectl get nodes -o wide"]
        script = "\n".join(["set -e", *commands, *wide]).replace("--timeout 2m", "--timeout 10m")
        done = run_program(
            ["sh", "-c", script],
            env={
                **os.environ,
                "PATH": f"{kubectl.parent}:{os.environ['PATH']}",
                "KUBECACHEDIR": str(tmp_path / "kube-cache"),
            },
            timeout=900,
        )

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(commands) <= 6
    assert "finished: success" in done.stdout
    assert "Rolled out: every runner has image" in done.stdout
    header, node = done.stdout.partition("WIDE\n")[2].splitlines()
    assert "OS-IMAGE" in header
    assert re.search(r"tart-kubelet-v0 .* macOS 26\.3 \(25D125\) .* tart://[0-9.]+$", node.rstrip())
    assert "<unknown>" not in node
