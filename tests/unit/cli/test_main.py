"""The command line of `bramley`: usage, settings, and one line and an exit code per failure."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from pathlib import Path

import pytest
import yaml

from bramley.base import log
from bramley.base.errors import (
    ApiUnavailable,
    BadConfiguration,
    CommandFailed,
    Conflict,
    Forbidden,
    HostUnreachable,
    InvalidSpec,
    LoginRefused,
    NotConverged,
)
from bramley.cli import failures, host_connection, main, options
from tests.programs import run_program

pytestmark = pytest.mark.usefixtures("restore_logging")
Captured = pytest.CaptureFixture[str]


def run(*arguments: str) -> int:
    return main.run(arguments)


def test_version_is_printed(capsys: Captured) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("bramley 0.")


@pytest.mark.parametrize("arguments", [["-h"], ["--help"], ["up", "-h"], ["crds", "--help"]])
def test_help_is_plain_text(arguments: list[str], capsys: Captured) -> None:
    assert run(*arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: bramley")
    assert "\x1b" not in out


@pytest.mark.parametrize("count", ["-1", "51", "1000000"])
def test_number_of_macs_is_limited(count: str, capsys: Captured) -> None:
    assert run("up", "--macs", count) == 2
    assert f"{count} is not in the range 0<=x<=50" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["up", "--nope"],
        ["up", "--log-level", "loud"],
        ["crds", "-o", "xml"],
        ["crds", "--kind", "Pear"],
        ["apiserver", "--listen", "here", "--show-settings"],
        ["host", "facts", "m1@mac", "--connect-timeout", "x"],
    ],
)
def test_wrong_usage_is_reported_on_standard_error_with_code_2(
    arguments: list[str], capsys: Captured
) -> None:
    assert run(*arguments) == 2

    output = capsys.readouterr()
    assert output.out == ""
    assert "Traceback" not in output.err
    assert output.err.strip()


@pytest.mark.parametrize("command", ["up", "apiserver"])
def test_settings_are_shown_with_value_and_source(
    command: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAMLEY_LISTEN", "127.0.0.1:7443")
    monkeypatch.setenv("BRAMLEY_DATA_DIR", "/nowhere")

    assert run(command, "--data-dir", str(tmp_path), "--show-settings") == 0

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = {line[0]: (line[1], " ".join(line[2:])) for line in lines}
    assert shown["--data-dir"] == (str(tmp_path), "flag")
    assert shown["--listen"] == ("127.0.0.1:7443", "environment BRAMLEY_LISTEN")
    assert shown["--kubeconfig-out"] == (str(tmp_path / "kubeconfig"), "default")
    assert shown["--log-format"] == ("auto", "default")
    assert list(tmp_path.iterdir()) == []


def test_default_data_folder_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert options.default_data_dir() == Path("/home/ada/.local/share/bramley")

    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert options.default_data_dir() == Path("/data/bramley")

    monkeypatch.setattr("sys.platform", "darwin")
    expected = Path("/home/ada/Library/Application Support/Bramley")
    assert expected == options.default_data_dir()


@pytest.fixture
def user_without_home(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Run as a user without a passwd entry."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "XDG_DATA_HOME", "BRAMLEY_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    return monkeypatch


@pytest.mark.parametrize(
    "arguments", [["up", "--macs", "0", "--show-settings"], ["host", "facts", "m1@mac"]]
)
@pytest.mark.usefixtures("user_without_home")
def test_user_without_home_must_name_a_folder(arguments: list[str], capsys: Captured) -> None:
    assert run(*arguments) == 2

    assert "BRAMLEY_DATA_DIR" in capsys.readouterr().err


def test_host_keys_are_kept_in_the_data_folder(user_without_home: pytest.MonkeyPatch) -> None:
    user_without_home.setenv("BRAMLEY_DATA_DIR", "/data")

    ssh_options = host_connection._ssh_options(target="m1@mac")

    assert (ssh_options.known_hosts, ssh_options.identities) == (Path("/data/known_hosts"), ())


class Interrupted(io.StringIO):
    def write(self, text: str) -> int:
        raise KeyboardInterrupt(text)


def test_ctrl_c_is_one_line_and_a_code(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", Interrupted())
        assert run("crds") == 130

    assert capsys.readouterr().err == "bramley: stopped by Ctrl-C\n"


LOADING = """
import sys

class InterruptedImport:
    def find_spec(self, name, *_):
        if name.startswith(("typer", "bramley.cli.")) and name != "bramley.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, InterruptedImport())
from bramley.cli.main import main
main()
"""


def test_ctrl_c_while_the_program_loads_is_no_traceback() -> None:
    result = run_program([sys.executable, "-P", "-c", LOADING], timeout=60)

    assert (result.returncode, result.stderr) == (130, "bramley: stopped by Ctrl-C\n")


def test_characters_that_a_terminal_cannot_encode_are_escaped() -> None:
    code = "from bramley.cli.main import main; import sys; sys.argv = ['bramley', '--version']\n"
    code += "try: main()\nexcept SystemExit: print('\u280b')"
    result = run_program(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        timeout=60,
    )

    assert (result.returncode, result.stdout.splitlines()[-1:]) == (0, ["\\u280b"])


def test_invalid_duration_is_reported_with_examples(capsys: Captured) -> None:
    run("host", "facts", "m1@mac", "--connect-timeout", "x")

    assert "write it like 30s, 5m, 24h or 7d" in capsys.readouterr().err


def test_definitions_are_printed_as_yaml(capsys: Captured) -> None:
    assert run("crds") == 0

    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    kinds = {one["spec"]["names"]["kind"] for one in printed}
    assert {"RunnerPool", "TuistCluster"} <= kinds


def test_definitions_are_printed_as_one_json_list(capsys: Captured) -> None:
    assert run("crds", "-o", "json") == 0

    printed = json.loads(capsys.readouterr().out)
    assert printed["kind"] == "List"
    assert len(printed["items"]) == 5


@pytest.mark.parametrize("kind", ["RunnerPool", "runnerpools", "rpool", "RUNNERPOOL"])
def test_one_definition_is_printed_alone(kind: str, capsys: Captured) -> None:
    assert run("crds", "--kind", kind, "-o", "json") == 0

    assert json.loads(capsys.readouterr().out)["metadata"]["name"] == "runnerpools.tuist.dev"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BadConfiguration("the port is taken; choose another"), 2, "the port is taken"),
        (InvalidSpec("no"), 2, "no"),
        (ApiUnavailable("down"), 1, "down; try again once the server runs"),
        (HostUnreachable("m1@mac: gone"), 1, "m1@mac: gone; check that the Mac is on"),
        (CommandFailed("m1@mac: x"), 1, "m1@mac: x; fix the cause"),
        (Conflict("m1@mac: wait for the other's end"), 1, "m1@mac: wait for the other's end\n"),
        (LoginRefused("m1@mac: no"), 2, "m1@mac: no\n"),
        (NotConverged("m1@mac: x"), 1, "m1@mac: x; fix the cause"),
        (Forbidden("no"), 2, "no; use the kubeconfig of a user"),
        (OSError(28, "No space left on device", "/data"), 1, "No space left on device (/data)"),
        (KeyError("x"), 70, "this is a bug: KeyError: 'x'"),
        (ExceptionGroup("g", [ExceptionGroup("h", [BadConfiguration("deep")])]), 2, "deep"),
    ],
)
def test_failure_is_one_line_and_a_code(
    error: Exception, code: int, message: str, capsys: Captured
) -> None:
    logging.getLogger().setLevel(logging.INFO)

    assert code == failures.report("bramley", error)

    line = capsys.readouterr().err
    assert line.startswith(f"bramley: {message}")
    assert line.count("\n") == 1


def test_traceback_is_printed_with_debug_only(capsys: Captured) -> None:
    log.configure(level="debug")

    failures.report("bramley", RuntimeError("x"))

    assert "RuntimeError" in capsys.readouterr().err.splitlines()[-1]


def test_traceback_is_printed_with_the_log_level_variable(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    logging.getLogger().setLevel(logging.WARNING)
    monkeypatch.setenv("BRAMLEY_LOG_LEVEL", "debug")

    failures.report("bramley", RuntimeError("x"))

    message, *traceback = capsys.readouterr().err.splitlines()
    assert message.endswith("BRAMLEY_LOG_LEVEL=debug")
    assert traceback[-1] == "RuntimeError: x"
