"""The configuration file of `bramley host`: its specification, and errors that name the invalid field."""

from __future__ import annotations

import hashlib
import io
import plistlib
import tarfile
from pathlib import Path

import msgspec
import pytest

from bramley.app import config_files, host_config
from bramley.app.host_config import config_errors
from bramley.base.errors import BadConfiguration, InvalidSpec
from bramley.base.secret import Secret
from bramley.host import agent_daemon, sequence
from bramley.host.agent_archive import MANIFEST, Kind, Manifest, Platform
from bramley.host.artifacts import ArtifactStore
from bramley.host.spec import MacSpec
from bramley.host.steps import agent_job
from bramley.host.steps.dhcp_leases import DhcpLeases

GZIP = b"\x1f\x8b"
COMPLETE = """
node: mac-1
labels: {tuist.dev/fleet: demo}
providerId: scw-applesilicon://fr-par-1/1
cpu: 10
memoryMb: 32768
maxPods: 2
builder: true
publicKeys: [ssh-ed25519 AAAA admin]
egress: {cacheNetwork: 10.1.0.0/16, clusterDns: 10.96.0.10}
artifacts:
  tart: {file: tart.tar.gz, version: 2.32.1}
  tailscale: {file: tailscale.tar.gz, version: 1.96.5}
tailnet: {authKeyFile: key, tags: [mac]}
"""


async def spec_of(text: str, folder: Path) -> MacSpec:
    (folder / "mac.yaml").write_text(text)
    config = host_config.read(folder / "mac.yaml")
    return await host_config.spec(config, folder, ArtifactStore(), password=Secret("canary"))


async def test_complete_file_becomes_a_specification(tmp_path: Path) -> None:
    for name in ("tart.tar.gz", "tailscale.tar.gz"):
        (tmp_path / name).write_bytes(GZIP + name.encode())
    (tmp_path / "key").write_text("tskey-auth-canary\n")
    spec = await spec_of(COMPLETE, tmp_path)
    assert (spec.job.node_name, spec.job.host_cpu, spec.job.is_builder) == ("mac-1", 10, True)
    assert spec.job.on_tailnet
    assert spec.egress.cache_network == "10.1.0.0/16"
    assert spec.tart
    assert spec.tart.sha256 == hashlib.sha256(GZIP + b"tart.tar.gz").hexdigest()
    assert spec.tailnet
    assert spec.tailnet.auth_key == Secret("tskey-auth-canary")
    assert "canary" not in repr(spec)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "HostConfig|object"),
        ("node: [", "not valid YAML"),
        ("node: mac-1\ncolour: red", "colour"),
        ("node: 7", r"\$.node"),
        ("node: mac-1\negress: {cacheNet: x}", "cacheNet"),
        ("node: mac-1\ncpu: 4\ncpu: 8", "duplicate key cpu in the mapping at line 1"),
        ("node: mac-1\nlabels: {a: b, a: c}", "duplicate key a in the mapping at line 2"),
        ("node: mac-1\nlabels: &all {a: b, c: *all}", r"labels|not valid YAML"),
        ("node: 2026-99-99", "not valid YAML: month must be in"),
        ("node: !!bool maybe", "not valid YAML"),
        ("node: !!timestamp soon", "not valid YAML"),
        ("node: mac-1\ntailnet: {authKeyFile: key}", "artifacts.tailscale"),
        ("node: mac-1\nartifacts: {agent: {file: mac.yaml}}", "it is not an archive of the agent"),
        (
            "node: mac-1\nartifacts: {agent: {file: nope}}",
            r"^artifacts.agent: No such file .*/nope\)",
        ),
        (
            "node: mac-1\nartifacts: {tart: {file: nope, version: 1.0.0}}",
            "^artifacts.tart: No such",
        ),
        (
            "node: mac-1\nartifacts: {tart: {file: mac.yaml, version: 1.0.0}}",
            "tart: .* is not a .tar.gz archive",
        ),
        ("node: mac-1\nvmBootTimeoutSeconds: 5m", r"\$.vmBootTimeoutSeconds"),
        ("node: mac-1\ndhcpLeaseSeconds: 5m", r"\$.dhcpLeaseSeconds"),
        ("node: mac-1\nvmBootTimeoutSeconds: 5:00", r"\$.vmBootTimeoutSeconds"),
        ("node: mac-1\nclientAuthorityFile: nope", "^clientAuthorityFile: No such file"),
        (
            "node: mac-1\nartifacts: {tailscale: {file: a, version: 1.0.0}}",
            "artifacts.tailscale is given without tailnet",
        ),
    ],
)
async def test_invalid_file_is_refused_with_the_problem(
    text: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(BadConfiguration, match=problem):
        await spec_of(text, tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "node: Mac;reboot",
        "node: mac-1\ncpu: 0",
        "node: mac-1\nuser: 'a b'",
        "node: mac-1\nlabels: {'-x': y}",
        "node: mac-1\negress: {cacheNetwork: 10.1.0.1/16}",
        "node: mac-1\nartifacts: {tart: {file: mac.yaml, version: latest}}",
    ],
)
async def test_invalid_values_are_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec):
        await spec_of(line, tmp_path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("cpu: 0", "cpu '0' must be from 1 to"),
        ("memoryMb: 0", "memoryMb '0' must"),
        ("maxPods: 0", "maxPods '0' must"),
        ("labels: {a: '-'}", r"labels\[a\] '-' must"),
        ("registerTaints: ['a:Never']", r"registerTaints 'a:Never' has the unknown effect"),
        (
            "labels: {kubernetes.io/os: linux}",
            r"labels\[kubernetes.io/os\] 'linux' must be left out",
        ),
        ("labels: {tuist.dev/golden-a: 'true'}", r"labels\[tuist.dev/golden-a\] 'true' must be"),
        ("providerId: x", "providerId 'x' must"),
        ("egress: {clusterDns: '-'}", "egress.clusterDns '-' must"),
        ("nodeIp: here", "nodeIp 'here' must"),
        ("vmBootTimeoutSeconds: 0", "vmBootTimeoutSeconds '0' must be from 1 to 86400"),
        ("vmBootTimeoutSeconds: -5", "vmBootTimeoutSeconds '-5' must"),
        ("vmBootTimeoutSeconds: 86401", "vmBootTimeoutSeconds '86401' must"),
        ("dhcpLeaseSeconds: 59", "dhcpLeaseSeconds '59' must be from 60 to 86400"),
        ("dhcpLeaseSeconds: 86401", "dhcpLeaseSeconds '86401' must"),
        ("listen: {health: '0'}", "listen.health '0' must"),
        ("artifacts: {nodeExporter: {file: a, version: b}}", "artifacts.nodeExporter.version 'b'"),
    ],
)
async def test_invalid_value_is_reported_with_the_field_of_the_file(
    line: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "mac.yaml"
    with pytest.raises(InvalidSpec, match=f"^{path}: {problem}"), config_errors(path):
        await spec_of(f"node: mac-1\n{line}\n", tmp_path)


async def test_too_long_node_name_is_reported_with_the_limit(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="of at most 63 characters between two dots"):
        await spec_of(f"node: {'a' * 64}", tmp_path)


async def test_agent_listens_on_the_configured_addresses(tmp_path: Path) -> None:
    listen = "{kubelet: '127.0.0.1:10251', metrics: '127.0.0.1:8082', health: '127.0.0.1:8083'}"
    spec = await spec_of(f"node: mac-1\nnodeIp: 127.0.0.2\nlisten: {listen}\n", tmp_path)

    arguments = plistlib.loads(agent_daemon.render_plist(spec.job))["ProgramArguments"]

    assert {
        "--node-ip=127.0.0.2",
        "--kubelet-bind-address=127.0.0.1:10251",
        "--metrics-bind-address=127.0.0.1:8082",
        "--health-probe-bind-address=127.0.0.1:8083",
    } <= {*arguments}
    assert agent_job.health_probe(spec.job).argv[-1].startswith("http://127.0.0.1:8083/healthz")


@pytest.mark.parametrize(("line", "seconds"), [("", 600), ("dhcpLeaseSeconds: 300", 300)])
async def test_leases_of_vms_last_as_long_as_configured(
    line: str, seconds: int, tmp_path: Path
) -> None:
    spec = await spec_of(f"node: mac-1\n{line}\n", tmp_path)

    assert DhcpLeases(seconds) in sequence.steps(spec)


@pytest.mark.parametrize(
    ("line", "flags"),
    [("", []), ("vmBootTimeoutSeconds: 420", ["--vm-boot-timeout=420"])],
)
async def test_agent_gets_the_boot_deadline_of_vms(
    line: str, flags: list[str], tmp_path: Path
) -> None:
    spec = await spec_of(f"node: mac-1\n{line}\n", tmp_path)

    arguments = plistlib.loads(agent_daemon.render_plist(spec.job))["ProgramArguments"]

    assert [flag for flag in arguments if flag.startswith("--vm-boot-timeout")] == flags


async def test_digest_is_case_insensitive(tmp_path: Path) -> None:
    (tmp_path / "tart.tar.gz").write_bytes(GZIP)
    digest = hashlib.sha256(GZIP).hexdigest().upper()
    spec = await spec_of(
        f"node: a\nartifacts: {{tart: {{file: tart.tar.gz, version: 1.0.0, sha256: {digest}}}}}",
        tmp_path,
    )
    assert spec.tart


async def test_file_with_another_digest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tart.tar.gz").write_bytes(GZIP)
    digest = "0" * 64
    text = (
        f"node: a\nartifacts: {{tart: {{file: tart.tar.gz, version: 2.32.1, sha256: '{digest}'}}}}"
    )
    with pytest.raises(BadConfiguration, match="fetch it again"):
        await spec_of(text, tmp_path)


def test_invalid_secret_file_is_refused_without_being_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for content in (b"canary\xff", b" \n", b"canary" * 20_000):
        file.write_bytes(content)
        with pytest.raises(BadConfiguration) as caught:
            config_files.secret(file, field="authKeyFile")
        assert "canary" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_final_newline_is_not_part_of_a_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b" pass word \r\n")
    assert config_files.secret(tmp_path / "secret", field="authKeyFile").reveal() == " pass word "


PYTHON, OTHER_PYTHON = "3.13.1+cccccccccccc", "3.13.2+dddddddddddd"


def archive(path: Path, kind: Kind, version: str, interpreter: str = "") -> None:
    manifest = Manifest(
        kind=kind,
        name=kind,
        version=version,
        platform=Platform.MACOS_ARM64,
        python="3.13",
        interpreter=interpreter,
        content="0" * 64,
    )
    text = msgspec.json.encode(manifest)
    with tarfile.open(path, "w:gz") as tar:
        first = tarfile.TarInfo(MANIFEST)
        first.size = len(text)
        tar.addfile(first, io.BytesIO(text))


async def test_mismatched_agent_and_interpreter_are_refused(tmp_path: Path) -> None:
    text = "node: a\nartifacts: {interpreter: {file: python}, agent: {file: agent}}"
    archive(tmp_path / "python", Kind.INTERPRETER, PYTHON)
    archive(tmp_path / "agent", Kind.CODE, "0.1.0+aaaaaaaaaaaa", PYTHON)
    assert (await spec_of(text, tmp_path)).agent
    archive(tmp_path / "agent", Kind.CODE, "0.1.0+aaaaaaaaaaaa", OTHER_PYTHON)
    with pytest.raises(BadConfiguration, match=r"needs the interpreter 3\.13\.2"):
        await spec_of(text, tmp_path)
