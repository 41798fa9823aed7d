"""The command line of the agent: flags, environment variables, defaults and errors."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.settings import Endpoint, Settings
from bramley.api.names import flags
from bramley.api.names.flags import Flag
from bramley.base.errors import BadConfiguration
from bramley.cli import agent_flags, agent_settings, tart_kubelet
from tests.programs import run_program

pytestmark = pytest.mark.usefixtures("restore_logging")
Captured = pytest.CaptureFixture[str]
# Libraries that the agent must not load, to keep its memory small.
HEAVY = ("typer", "rich", "click", "cryptography", "starlette", "uvicorn", "uvloop", "sqlite3")
HEAVY_TOO = ("jwt", "cel", "bramley.apiserver", "bramley.access", "bramley.sim")


def settings(*arguments: str, **environment: str) -> Settings:
    given, _ = agent_flags.read(arguments, environment)
    return agent_settings.settings(given, environment)


def test_defaults_are_those_of_the_contract() -> None:
    parsed = settings(HOME="/Users/m1")

    assert (parsed.node.cpu, parsed.node.memory_mb, parsed.node.max_pods) == (8, 16384, 2)
    assert parsed.tart_binary == "/usr/local/bin/tart"
    assert parsed.gc_enabled
    assert parsed.folders.state == Path("/var/lib/tart-kubelet")
    assert parsed.folders.user_data == Path("/var/lib/tart-userdata")
    assert parsed.folders.vm_logs == Path("/var/log/tart-vms")
    assert parsed.folders.tart_home == Path("/Users/m1/.tart")
    assert parsed.folders.dhcp_leases == Path("/var/db/dhcpd_leases")
    assert parsed.vm_boot_timeout == timedelta(minutes=5)
    assert parsed.metrics == Endpoint("", 8080, is_default=True)
    assert parsed.health == Endpoint("", 8081, is_default=True)
    assert parsed.gui_session_uid is None


def test_zeroes_mean_the_defaults() -> None:
    parsed = settings("--host-cpu", "0", "--host-memory-mb=0", "--max-pods", "0")

    assert (parsed.node.cpu, parsed.node.memory_mb, parsed.node.max_pods) == (8, 16384, 2)


def test_host_name_is_lowercased_for_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Mac-Mini.local")

    assert settings().node.name == "mac-mini.local"


def test_labels_are_read_and_blanks_skipped() -> None:
    assert settings("--node-labels", "a=1, b=2,,c=").node.labels == {"a": "1", "b": "2", "c": ""}


def test_taints_are_read_from_flag_or_variable() -> None:
    flag = settings("--register-taints", "a=1:NoSchedule, b:NoExecute").node.register_taints
    variable = settings(TART_KUBELET_REGISTER_TAINTS="c:NoSchedule").node.register_taints

    assert [(each.key, each.value, each.effect) for each in (*flag, *variable)] == [
        ("a", "1", "NoSchedule"),
        ("b", "", "NoExecute"),
        ("c", "", "NoSchedule"),
    ]
    assert settings().node.register_taints == settings("--register-taints", "").node.register_taints


def test_flag_overrides_variable_and_variable_overrides_default() -> None:
    variables = {"TART_KUBELET_NODE_NAME": "from-env", "TART_KUBELET_STATE_DIR": "/e"}

    parsed = settings("--node-name", "from-flag", **variables)

    assert (parsed.node.name, parsed.folders.state) == ("from-flag", Path("/e"))


@pytest.mark.parametrize("known", list(agent_flags.all_flags()), ids=lambda known: known.flag.name)
def test_variable_of_every_flag_is_read(known: agent_flags.FlagHelp) -> None:
    if not known.flag.env:
        return

    given, _ = agent_flags.read([], {known.flag.env: "value"})

    assert given.text(known.flag) == "value"
    assert given.source_name(known.flag) == known.flag.env


def test_every_contract_flag_is_accepted() -> None:
    named = {value.name for value in vars(flags).values() if isinstance(value, Flag)}

    # A flag of controllers.
    assert named - {known.flag.name for known in agent_flags.all_flags()} == {"--leader-elect"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-pods", "two"], "--max-pods 'two'"),
        (["--host-cpu", "-1"], "--host-cpu '-1'"),
        (["--vm-boot-timeout", "0"], "--vm-boot-timeout '0'"),
        (["--vm-boot-timeout", "5m"], "--vm-boot-timeout '5m'"),
        (["--vm-boot-timeout", "9" * 30], "is more than a day"),
        (["--node-labels", "=x"], "--node-labels"),
        (["--node-labels", "novalue"], "--node-labels"),
        (["--node-labels", "bad key=x"], "--node-labels"),
        (["--register-taints", "a"], "--register-taints: 'a' is not KEY[=VALUE]:EFFECT"),
        (["--register-taints", "a:NoSchedule,,b:NoSchedule"], "--register-taints: '' is not KEY"),
        (["--register-taints", "a:NoSchedule,"], "--register-taints: '' is not KEY"),
        (["--register-taints", "a:NoSchedule,a=b:NoSchedule"], "'a=b:NoSchedule' has the key"),
        (["--register-taints", "a:Never"], "'a:Never' has the unknown effect 'Never'; use NoSched"),
        (["--node-name", "Not A Name"], "--node-name"),
        (["--node-ip", "1.2.3"], "--node-ip '1.2.3'"),
        (
            ["--node-ip-source", "wifi"],
            "--node-ip-source 'wifi' is unknown; choose auto or tailscale",
        ),
        (["--gui-preflight", "maybe"], "--gui-preflight"),
        (["--disable-vm-gc=perhaps"], "--disable-vm-gc"),
        (["--metrics-bind-address", "8080"], "--metrics-bind-address '8080'"),
        (["--health-probe-bind-address", ":70000"], "--health-probe-bind-address"),
        (["--kubelet-bind-address", "::1:10250"], "--kubelet-bind-address"),
        (["--tls-cert-file", "/nowhere"], "--tls-cert-file"),
        (["--client-ca-file", "/nowhere"], "--client-ca-file '/nowhere' cannot be read"),
        (["--registry-credentials-file", "/nowhere"], "--registry-credentials-file"),
        (["--stage-megabytes-per-second", "fast"], "--stage-megabytes-per-second"),
        (["--scrape-allowed-cidr", "anywhere"], "--scrape-allowed-cidr"),
        (["--log-level", "loud"], "--log-level"),
    ],
)
def test_invalid_value_is_reported_in_one_line_with_its_flag(
    arguments: list[str], message: str, capsys: Captured
) -> None:
    assert tart_kubelet.run(arguments, {}) == 2

    line = capsys.readouterr().err
    assert line.startswith("tart-kubelet: ")
    assert message in line
    assert line.count("\n") == 1


def test_invalid_variable_is_reported_by_its_name(capsys: Captured) -> None:
    assert tart_kubelet.run([], {"TART_KUBELET_NODE_IP": "here"}) == 2

    assert "TART_KUBELET_NODE_IP 'here'" in capsys.readouterr().err


def test_certificate_needs_a_key(tmp_path: Path) -> None:
    certificate = tmp_path / "c.pem"
    certificate.write_text("")

    with pytest.raises(BadConfiguration, match="--tls-key-file"):
        settings("--tls-cert-file", str(certificate))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nope"], "'--nope' is unknown; tart-kubelet --help lists all flags"),
        (["--node-nme=x"], "'--node-nme=x' is unknown; did you mean --node-name?"),
        (["--node", "x"], "'--node' is unknown; "),
        (["surplus"], "'surplus' is unknown; tart-kubelet --help lists all flags"),
        (["--max-pods"], "argument --max-pods: expected one argument; tart-kubelet --help lists"),
    ],
)
def test_wrong_command_line_is_reported_in_one_line_with_a_hint(
    arguments: list[str], message: str, capsys: Captured
) -> None:
    assert tart_kubelet.run(arguments, {}) == 2

    printed = capsys.readouterr().err
    assert printed.startswith(f"tart-kubelet: {message}")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--disable-vm-gc"], False),
        (["--disable-vm-gc=true"], False),
        (["--disable-vm-gc=false"], True),
        ([], True),
    ],
)
def test_disable_vm_gc_flag(arguments: list[str], expected: bool) -> None:
    assert settings(*arguments).gc_enabled is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":9000", Endpoint("", 9000)),
        ("127.0.0.1:0", Endpoint("127.0.0.1", 0)),
        ("[::1]:9000", Endpoint("::1", 9000)),
        ("0", None),
    ],
)
def test_listen_addresses(text: str, expected: Endpoint | None) -> None:
    assert settings("--metrics-bind-address", text).metrics == expected


def test_session_is_checked_if_launchctl_is_on_the_path(tmp_path: Path) -> None:
    launchctl = tmp_path / "launchctl"
    launchctl.write_text("")
    launchctl.chmod(0o755)

    assert settings(PATH=str(tmp_path)).gui_session_uid is not None
    assert settings(PATH="/nowhere").gui_session_uid is None
    assert settings("--gui-preflight", "off", PATH=str(tmp_path)).gui_session_uid is None
    assert settings("--gui-preflight", "on", PATH="/nowhere").gui_session_uid is not None


def test_flags_of_older_agents_are_accepted_and_reported_as_ignored() -> None:
    given, _ = agent_flags.read(
        ["--vnc-relay-port", "5900", "--zap-log-level=debug"],
        {"TART_KUBELET_RUNNER_CACHE_ROOT": "/c"},
    )

    ignored = agent_flags.ignored_flags(given)
    assert ignored == ["--vnc-relay-port", "TART_KUBELET_RUNNER_CACHE_ROOT", "--zap-log-level"]


def test_settings_are_shown_with_value_and_source(capsys: Captured) -> None:
    variables = {"TART_KUBELET_NODE_IP": "10.0.0.7", "HOME": "/Users/m1"}

    assert tart_kubelet.run(["--max-pods", "3", "--show-settings"], variables) == 0

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = {line[0]: line[1:] for line in lines}
    assert shown["--max-pods"] == ["3", "flag"]
    assert shown["--node-ip"] == ["10.0.0.7", "environment", "TART_KUBELET_NODE_IP"]
    assert shown["--tart-home"] == ["/Users/m1/.tart", "default"]


def test_missing_kubeconfig_is_reported(tmp_path: Path, capsys: Captured) -> None:
    folders = [
        f"--{name}={tmp_path / name}" for name in ("state-dir", "userdata-dir", "vm-log-dir")
    ]
    missing = tmp_path / "kubeconfig"

    assert tart_kubelet.run([*folders, f"--kubeconfig={missing}"], {}) == 2

    assert str(missing) in capsys.readouterr().err


def test_version_and_help_are_printed(capsys: Captured) -> None:
    assert tart_kubelet.run(["--version"], {}) == 0
    assert capsys.readouterr().out.startswith("tart-kubelet 0.")
    with pytest.raises(SystemExit) as ended:
        tart_kubelet.run(["--help"], {})
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "Examples:" in out
    assert all(known.flag.name in out for known in agent_flags.all_flags())


def test_agent_does_not_import_heavy_modules() -> None:
    modules = "bramley.cli.agent_settings, bramley.app.agent, bramley.agent.serving.endpoints"
    more = "bramley.agent.supervised_runs, bramley.agent.processes, bramley.kube.config_loader"
    code = f"import sys, {modules}, {more}; print('\\n'.join(sys.modules))"

    done = run_program([sys.executable, "-c", code], timeout=60, check=True)

    loaded = done.stdout.split()
    assert [name for name in loaded if name.startswith((*HEAVY, *HEAVY_TOO))] == []
