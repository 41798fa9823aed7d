"""The contract's names: test vectors, the table of fixed names, no duplicates, and no literal elsewhere."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import bramley
from bramley.api import names
from bramley.api.names.flags import Flag
from bramley.api.names.metrics import Metric

SOURCES = Path(bramley.__file__).parent
NAMES = SOURCES / "api/names"
IMAGE = "ghcr.io/tuist/tuist-runner@sha256:" + 64 * "a"
HASH = "9c8af651fdf30b10"

# What must not be a literal outside the names: anything with the fleet's prefix, except a kind's own plural.
MARK = re.compile(
    r"tuist(?!clusters$)|tart-kubelet|tart_kubelet|scw-applesilicon|x-k8s\.io|cluster-api-"
)

BETWEEN_LITERALS = re.compile(r"[\"']\s*[A-Za-z]{0,2}[\"']")


def modules() -> list[ModuleType]:
    found = pkgutil.iter_modules([str(NAMES)])
    return [importlib.import_module(f"bramley.api.names.{one.name}") for one in found]


def constants(module: ModuleType) -> dict[str, str]:
    values: dict[str, str] = {}
    for key, value in vars(module).items():
        if key.isupper() and isinstance(value, str):
            values[key] = value
        elif key.isupper() and isinstance(value, Metric | Flag):
            values[key] = value.name
    return values


def test_golden_names_of_an_image_are_those_of_the_contract() -> None:
    assert names.labels.golden_hash(IMAGE) == HASH
    assert names.labels.golden(IMAGE) == f"tuist.dev/golden-{HASH}"
    assert names.agent.golden_vm(IMAGE) == f"tuist-golden-{HASH}"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (names.agent.container_id("ns-pod"), "tart://ns-pod"),
        (names.agent.service_account("m-1"), "tart-kubelet-m-1"),
        (names.agent.token_secret("m-1"), "tart-kubelet-m-1-token"),
        (names.secrets.fleet_ssh("fleet"), "fleet-ssh"),
        (names.secrets.machine_bootstrap("m-1"), "m-1-bootstrap"),
        (names.machines.provider_id("fr-par-1", "u"), "scw-applesilicon://fr-par-1/u"),
        (names.runners.pod_name("pool", "0a1b2c3d"), "pool-runner-0a1b2c3d"),
        (names.labels.cache_master(42), "tuist.dev/cache-master-42"),
        (names.host.sudoers("m1"), "/etc/sudoers.d/m1-nopasswd"),
        (
            names.launchd.daemon_plist(names.launchd.AGENT),
            "/Library/LaunchDaemons/dev.tuist.tart-kubelet.plist",
        ),
        (names.launchd.actions_runner("tuist", "mac-1"), "actions.runner.tuist.mac-1"),
    ],
)
def test_generated_names_follow_the_contract(made: str, expected: str) -> None:
    assert made == expected


CONTRACT = {
    *("tart-kubelet.tuist.dev/vm-cleanup", "tuist.dev/runner-pool-drain"),
    "scalewayapplesilicon.cluster.x-k8s.io/finalizer",
    *("tuist.dev/fleet", "tuist.dev/runtime", "tuist.dev/macos", "tuist.dev/runner"),
    *("tuist.dev/runner-pool", "tuist.dev/runner-pool-owner", "tuist.dev/drain-eligible"),
    *("CreatingVM", "TartCreateFailed", "TartRunExited"),
    *("tuist_runners_pool_rolling_pods", "tuist_runners_pool_stale_pods"),
    "tuist_runners_pool_roll_concurrency_cap",
    *("tart_kubelet_pod_provision_delay_seconds", "tart_kubelet_vm_boot_duration_seconds"),
    *("/api/internal/runners/dispatch", "/api/internal/runners/desired_replicas"),
    *("/api/internal/runners/pods/stopped", "tuist-runners-dispatch"),
    *("/etc/pf.conf", "# BEGIN tuist.runners", "# END tuist.runners", "/etc/kcpassword"),
    *("dev.tuist.tart-kubelet", "/etc/tart-kubelet/kubeconfig", "/opt/actions-runner"),
    *("/opt/tuist-build-cache", "app-id", "installation-id", "private-key"),
    *("tuist-pool-", "tuist-claim-pending-", "tuist-runners", "runners-controller.tuist.dev"),
    "scaleway-applesilicon.infrastructure.cluster.x-k8s.io",
    *("--node-name", "--provider-id", "--node-labels", "--node-ip", "--kubeconfig"),
    *("--host-cpu", "--host-memory-mb", "--max-pods", "--tart-binary"),
    *("--metrics-bind-address", "--health-probe-bind-address", "--disable-vm-gc"),
}


def test_contract_is_complete() -> None:
    known = {value for module in modules() for value in constants(module).values()}

    assert known >= CONTRACT


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__.rpartition(".")[2])
def test_names_within_a_module_are_unique(module: ModuleType) -> None:
    # A label value and a taint value may both be "true"; anything longer names one thing.
    counts = Counter(value for value in constants(module).values() if value != "true")

    assert {value for value, count in counts.items() if count > 1} == set()


def test_every_module_is_exported_by_the_package() -> None:
    assert {module.__name__.rpartition(".")[2] for module in modules()} == set(names.__all__)


def test_no_metric_has_two_meanings() -> None:
    metrics = [value for value in vars(names.metrics).values() if isinstance(value, Metric)]

    assert len({metric.name for metric in metrics}) == len(metrics)
    assert all(metric.buckets == tuple(sorted(metric.buckets)) for metric in metrics)
    assert all(bool(metric.buckets) == (metric.type == "histogram") for metric in metrics)


def docstrings(tree: ast.AST) -> set[int]:
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, owners) and node.body and isinstance(node.body[0], ast.Expr)
    }


def marked(path: Path) -> list[str]:
    text = path.read_text()
    # Most files do not contain the prefix and need no parsing; it may begin in one literal and end in the next.
    if not MARK.search(BETWEEN_LITERALS.sub("", text)):
        return []
    tree = ast.parse(text)
    skipped = docstrings(tree)
    return [
        f"{path.relative_to(SOURCES)}:{node.lineno}: {node.value}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in skipped and MARK.search(node.value)
    ]


def test_names_are_literals_in_one_place_only() -> None:
    others = [path for path in SOURCES.rglob("*.py") if NAMES not in path.parents]

    assert [found for path in others for found in marked(path)] == []
