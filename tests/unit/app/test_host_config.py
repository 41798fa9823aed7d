"""The file of `bramley host`: what it becomes, and how a wrong one is refused by the name of its field."""

from __future__ import annotations

import hashlib
import io
import plistlib
import tarfile
from pathlib import Path

import msgspec
import pytest

from bramley.app import host_config
from bramley.app.host_config import telling
from bramley.base.errors import BadConfiguration, InvalidSpec
from bramley.base.secret import Secret
from bramley.host import agent_daemon
from bramley.host.agent_archive import MANIFEST, Kind, Manifest, Platform
from bramley.host.artifacts import ArtifactStore
from bramley.host.spec import MacSpec
from bramley.host.steps import agent_job

GZIP = b"\x1f\x8b"
WHOLE = """
node: mac-1
labels: {tuist.dev/fleet: demo}
providerId: scw-applesilicon://fr-par-1/1
cpu: 10
memoryMb: 32768
maxPods: 2
builder: true
publicKeys: [ssh-ed25519 AAAA somebody]
egress: {cacheNetwork: 10.1.0.0/16, clusterDns: 10.96.0.10}
artifacts:
  tart: {file: tart.tar.gz, version: 2.32.1}
  tailscale: {file: tailscale.tar.gz, version: 1.96.5}
tailnet: {authKeyFile: key, tags: [mac]}
"""


async def made_of(text: str, folder: Path) -> MacSpec:
    (folder / "mac.yaml").write_text(text)
    config = host_config.read(folder / "mac.yaml")
    return await host_config.spec(config, folder, ArtifactStore(), password=Secret("canary"))


async def test_a_whole_file_becomes_a_specification(tmp_path: Path) -> None:
    for name in ("tart.tar.gz", "tailscale.tar.gz"):
        (tmp_path / name).write_bytes(GZIP + name.encode())
    (tmp_path / "key").write_text("tskey-auth-canary\n")
    spec = await made_of(WHOLE, tmp_path)
    assert (spec.job.node_name, spec.job.host_cpu, spec.job.is_builder) == ("mac-1", 10, True)
    assert spec.job.on_tailnet
    assert spec.egress.cache_network == "10.1.0.0/16"
    assert spec.tart
    assert spec.tart.sha256 == hashlib.sha256(GZIP + b"tart.tar.gz").hexdigest()
    assert spec.tailnet
    assert spec.tailnet.auth_key == Secret("tskey-auth-canary")
    assert "canary" not in repr(spec)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "HostConfig|object"),
        ("node: [", "no YAML"),
        ("node: mac-1\ncolour: red", "colour"),
        ("node: 7", r"\$.node"),
        ("node: mac-1\negress: {cacheNet: x}", "cacheNet"),
        ("node: mac-1\ncpu: 4\ncpu: 8", "cpu given twice in what begins in line 1"),
        ("node: mac-1\nlabels: {a: b, a: c}", "a given twice in what begins in line 2"),
        ("node: mac-1\nlabels: &all {a: b, c: *all}", r"labels|no YAML"),
        ("node: 2026-99-99", "no YAML: month must be in"),
        ("node: !!bool maybe", "no YAML"),
        ("node: !!timestamp soon", "no YAML"),
        ("node: mac-1\ntailnet: {authKeyFile: key}", "artifacts.tailscale"),
        ("node: mac-1\nartifacts: {agent: {file: mac.yaml}}", "no archive of the agent"),
        (
            "node: mac-1\nartifacts: {agent: {file: nope}}",
            r"^artifacts.agent: No such file .*/nope\)",
        ),
        (
            "node: mac-1\nartifacts: {tart: {file: nope, version: 1.0.0}}",
            "^artifacts.tart: No such",
        ),
        ("node: mac-1\nartifacts: {tart: {file: mac.yaml, version: 1.0.0}}", "tart: .* no archive"),
        ("node: mac-1\nclientAuthorityFile: nope", "^clientAuthorityFile: No such file"),
        (
            "node: mac-1\nartifacts: {tailscale: {file: a, version: 1.0.0}}",
            "there is none; give tailnet",
        ),
    ],
)
async def test_a_wrong_file_is_refused_by_what_is_wrong(
    text: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(BadConfiguration, match=told):
        await made_of(text, tmp_path)


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
async def test_values_are_held_to_their_grammar(line: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec):
        await made_of(line, tmp_path)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("cpu: 0", "cpu '0' must be from 1 to"),
        ("memoryMb: 0", "memoryMb '0' must"),
        ("maxPods: 0", "maxPods '0' must"),
        ("labels: {a: '-'}", r"labels\[a\] '-' must"),
        (
            "labels: {kubernetes.io/os: linux}",
            r"labels\[kubernetes.io/os\] 'linux' must be left out",
        ),
        ("labels: {tuist.dev/golden-a: 'true'}", r"labels\[tuist.dev/golden-a\] 'true' must be"),
        ("providerId: x", "providerId 'x' must"),
        ("egress: {clusterDns: '-'}", "egress.clusterDns '-' must"),
        ("nodeIp: here", "nodeIp 'here' must"),
        ("listen: {health: '0'}", "listen.health '0' must"),
        ("artifacts: {nodeExporter: {file: a, version: b}}", "artifacts.nodeExporter.version 'b'"),
    ],
)
async def test_a_wrong_value_is_told_by_the_names_of_the_file(
    line: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "mac.yaml"
    with pytest.raises(InvalidSpec, match=f"^{path}: {told}"), telling(path):
        await made_of(f"node: mac-1\n{line}\n", tmp_path)


async def test_a_name_of_a_node_that_is_too_long_is_told_its_limit(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="of at most 63 characters between two dots"):
        await made_of(f"node: {'a' * 64}", tmp_path)


async def test_the_agent_listens_where_the_file_says(tmp_path: Path) -> None:
    listen = "{kubelet: '127.0.0.1:10251', metrics: '127.0.0.1:8082', health: '127.0.0.1:8083'}"
    spec = await made_of(f"node: mac-1\nnodeIp: 127.0.0.2\nlisten: {listen}\n", tmp_path)

    started = plistlib.loads(agent_daemon.render_plist(spec.job))["ProgramArguments"]

    assert {
        "--node-ip=127.0.0.2",
        "--kubelet-bind-address=127.0.0.1:10251",
        "--metrics-bind-address=127.0.0.1:8082",
        "--health-probe-bind-address=127.0.0.1:8083",
    } <= {*started}
    assert agent_job.health(spec.job).argv[-1].startswith("http://127.0.0.1:8083/healthz")


async def test_a_digest_may_be_written_in_any_letters(tmp_path: Path) -> None:
    (tmp_path / "tart.tar.gz").write_bytes(GZIP)
    digest = hashlib.sha256(GZIP).hexdigest().upper()
    spec = await made_of(
        f"node: a\nartifacts: {{tart: {{file: tart.tar.gz, version: 1.0.0, sha256: {digest}}}}}",
        tmp_path,
    )
    assert spec.tart


async def test_a_file_with_another_digest_is_not_brought_anywhere(tmp_path: Path) -> None:
    (tmp_path / "tart.tar.gz").write_bytes(GZIP)
    digest = "0" * 64
    text = (
        f"node: a\nartifacts: {{tart: {{file: tart.tar.gz, version: 2.32.1, sha256: '{digest}'}}}}"
    )
    with pytest.raises(BadConfiguration, match="fetch it again"):
        await made_of(text, tmp_path)


def test_a_secret_that_is_no_text_or_empty_or_huge_is_refused_without_being_shown(
    tmp_path: Path,
) -> None:
    file = tmp_path / "secret"
    for content in (b"canary\xff", b" \n", b"canary" * 20_000):
        file.write_bytes(content)
        with pytest.raises(BadConfiguration) as caught:
            host_config.secret(file, field="authKeyFile")
        assert "canary" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_the_end_of_the_line_is_no_part_of_a_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b" pass word \r\n")
    assert host_config.secret(tmp_path / "secret", field="authKeyFile").reveal() == " pass word "


PYTHON, OTHER_PYTHON = "3.13.1+cccccccccccc", "3.13.2+dddddddddddd"


def archive(path: Path, kind: Kind, version: str, interpreter: str = "") -> None:
    told = Manifest(
        kind=kind,
        name=kind,
        version=version,
        platform=Platform.MACOS_ARM64,
        python="3.13",
        interpreter=interpreter,
        content="0" * 64,
    )
    text = msgspec.json.encode(told)
    with tarfile.open(path, "w:gz") as made:
        first = tarfile.TarInfo(MANIFEST)
        first.size = len(text)
        made.addfile(first, io.BytesIO(text))


async def test_an_agent_and_an_interpreter_that_do_not_belong_together_are_refused(
    tmp_path: Path,
) -> None:
    text = "node: a\nartifacts: {interpreter: {file: python}, agent: {file: agent}}"
    archive(tmp_path / "python", Kind.INTERPRETER, PYTHON)
    archive(tmp_path / "agent", Kind.CODE, "0.1.0+aaaaaaaaaaaa", PYTHON)
    assert (await made_of(text, tmp_path)).agent
    archive(tmp_path / "agent", Kind.CODE, "0.1.0+aaaaaaaaaaaa", OTHER_PYTHON)
    with pytest.raises(BadConfiguration, match=r"wants the interpreter 3\.13\.2"):
        await made_of(text, tmp_path)
