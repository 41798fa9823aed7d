from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tools.kube import certificates, control_plane, flags
from tools.kube.__main__ import extra_flags
from tools.kube.flags import Options, Ports
from tools.kube.instance import Instance, Written, fresh_name
from tools.kube.processes import ProcessRecord

PORTS = Ports(apiserver=1001, controller_manager=1002, scheduler=1003)


def test_servers_start_in_the_order_they_need_each_other() -> None:
    assert Options().servers == (
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    )
    assert Options(controller_manager=False, scheduler=False).servers == ("etcd", "kube-apiserver")


@pytest.mark.parametrize("server", Options().servers)
def test_callers_flags_come_last_so_that_they_win(server: str) -> None:
    options = Options(extra={server: ("--mine=1", "--more=2")})

    assert flags.command_line(server, options, PORTS)[-2:] == ["--mine=1", "--more=2"]


def test_nothing_listens_beyond_loopback() -> None:
    for server in Options().servers:
        arguments = flags.command_line(server, Options(), PORTS)
        listening = [a for a in arguments if a.startswith(("--bind-address", "--listen-"))]
        assert listening
        assert all("=127.0.0.1" in a or "=unix://" in a for a in listening)


def test_etcd_syncs_to_disk_by_default() -> None:
    assert "--unsafe-no-fsync" not in flags.command_line("etcd", Options(), PORTS)
    assert "--unsafe-no-fsync" in flags.command_line("etcd", Options(durable=False), PORTS)


def test_pods_need_no_service_account_without_its_controller() -> None:
    refused = "--disable-admission-plugins=ServiceAccount"

    assert refused not in flags.command_line("kube-apiserver", Options(), PORTS)
    alone = Options(controller_manager=False)
    assert refused in flags.command_line("kube-apiserver", alone, PORTS)


def test_extra_flags_are_sorted_by_server() -> None:
    given = ["etcd=--a=b=c", "kube-scheduler=--x=1", "etcd=--d"]

    assert extra_flags(given) == {"etcd": ("--a=b=c", "--d"), "kube-scheduler": ("--x=1",)}


@pytest.mark.parametrize("given", ["kubelet=--x", "etcd", "etcd=x"])
def test_an_extra_flag_for_an_unknown_server_is_refused(given: str) -> None:
    with pytest.raises(SystemExit, match="SERVER=--flag"):
        extra_flags([given])


def test_instance_record_round_trips(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    record = ProcessRecord("etcd", 7, "then", "etcd.log")
    written = Written(Options(extra={"etcd": ("--x",)}), PORTS, (record,))

    assert instance.read() is None
    instance.write(written)

    assert instance.read() == written
    assert instance.server == "https://127.0.0.1:1001"


def test_an_instance_never_started_has_no_address(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no control plane was started"):
        _ = Instance(tmp_path).server


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "a/b", "a b"])
def test_a_name_that_leaves_the_cache_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid instance name"):
        Instance.named(name)


def test_fresh_names_differ() -> None:
    assert len({fresh_name("x") for _ in range(20)}) > 15


def test_kubeconfig_is_self_contained(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    certificates.ensure(instance.pki)

    instance.write_kubeconfigs(1001)

    config = yaml.safe_load(instance.kubeconfig.read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1001"
    assert set(config["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
    assert instance.kubeconfig.stat().st_mode & 0o077 == 0


def test_free_ports_differ() -> None:
    assert len(set(control_plane.free_ports(5))) == 5


@pytest.mark.parametrize(
    ("log_line", "is_tried_again"),
    [
        ("listen tcp 127.0.0.1:1: bind: address already in use", True),
        ("error initializing storage destroy: context deadline exceeded", True),
        ("unable to load configmap: Get https://x: net/http: TLS handshake timeout", True),
        ("panic: something else", False),
    ],
)
def test_transient_start_failures_are_distinguished_from_others(
    log_line: str, is_tried_again: bool, tmp_path: Path
) -> None:
    log = tmp_path / "x.log"
    server = ProcessRecord("kube-apiserver", 1, "then", str(log))
    log.write_text(f"{log_line}\n")

    found = control_plane.failure(server, "ended")

    assert isinstance(found, control_plane.TransientStartFailure) == is_tried_again
    assert log_line in str(found)
