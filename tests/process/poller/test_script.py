"""What only the script of the runner image has: processes, signals, secrets, and answers that are read without a JSON parser."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bramley.sim.mac.folder import MacFolder
from bramley.sim.tart import guest_process
from tests.dispatch_peer import DRAIN, NOTHING, Answer, DispatchPeer, Received, job
from tests.process.host_secrets import process_table
from tests.process.poller.pollers import RUNNER, TIMEOUT_SECONDS, TOKEN, Script, write_token
from tests.programs import run_program

JIT = "eyJhIjoiYi9jK2QifQ+/=="
RECORD = 'printf "%s" "$ACTIONS_RUNNER_INPUT_JITCONFIG" >"${0%/*}/configuration"'


@pytest.fixture(params=[("sh",), ("bash", "--posix")], ids=["sh", "bash"])
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    """Return the script for this machine's shell, and for the one that is macOS' sh."""
    made = Script(tmp_path, shell=request.param)
    write_token(made.env, TOKEN)
    made.runner(RECORD)
    return made


def peer(*answers: Answer) -> DispatchPeer:
    """Return an endpoint with these answers, the last one repeatedly."""
    rest = list(answers)
    return DispatchPeer(
        authenticate=lambda token: token,
        on_request=lambda _: rest.pop(0) if len(rest) > 1 else rest[0],
    )


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"encoded_jit_config": JIT, "owner": "a"}),
        json.dumps({"owner": "a", "encoded_jit_config": JIT}, indent=2),
        json.dumps({"a": '"encoded_jit_config":"x"', "encoded_jit_config": JIT, "z": {"b": "\\"}}),
        json.dumps({"encoded_jit_config": JIT}).replace("/", "\\/"),
        json.dumps({"encoded_jit_config": JIT}).replace("+", "\\u002B").replace("=", "\\u003d"),
        json.dumps({"encoded_jit_config": JIT}).replace(":", "\r\n\t:\r\n", 1) + "\n",
    ],
    ids=["plain", "indented", "nested quotes", "escaped slash", "escaped signs", "line breaks"],
)
def test_configuration_is_found_in_any_form_of_json(script: Script, body: str) -> None:
    with peer((200, body.encode())).serve() as url:
        assert script.run(url) == 0

    assert (script.root / "configuration").read_text() == JIT


@pytest.mark.parametrize("value", ["a b", "$(x)", "ab=c", 'a\\"'])
def test_configuration_that_is_not_base64_is_ignored(script: Script, value: str) -> None:
    body = json.dumps({"encoded_jit_config": value}).encode()

    with peer((200, body), DRAIN).serve() as url:
        assert script.run(url) == 0

    assert not (script.root / "configuration").exists()


def test_long_configuration_reaches_the_runner(script: Script) -> None:
    long = "QUJD" * 10_000

    with peer(job(long)).serve() as url:
        assert script.run(url) == 0

    assert (script.root / "configuration").read_text() == long


def test_token_and_configuration_are_in_no_command_line_and_no_log(script: Script) -> None:
    token = "header.payload-" + "s" * 40
    write_token(script.env, token)
    script.runner(f"{RECORD}\nsleep 0.3")
    seen: set[bytes] = set()

    def record(_: Received) -> Answer:
        table = process_table.ProcessTable()
        table.poll()
        seen.update(table.command_lines)
        return NOTHING if len(dispatch.requests) < 4 else job(JIT)

    dispatch = DispatchPeer(authenticate=lambda each: each, on_request=record)
    with process_table.recorded() as table, dispatch.serve() as url:
        assert script.run(url) == 0

    lines = seen | table.command_lines
    assert dispatch.requests[0].token == token
    # curl was running when its request was answered.
    assert any(b"curl" in line and b"dispatch" in line for line in lines)
    assert [line for line in lines if token.encode() in line or JIT.encode() in line] == []
    assert [each for each in (token, JIT) if each in script.log()] == []


def test_refused_connections_are_retried(script: Script) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    dispatch = peer(DRAIN)

    with script.started(f"http://127.0.0.1:{port}/api/internal/runners/dispatch") as process:
        wait_for(lambda: "No answer, curl exit code 7" in script.log())
        with dispatch.serve(port):
            assert process.wait(TIMEOUT_SECONDS) == 0


def test_request_without_an_answer_is_given_up(script: Script) -> None:
    script.variables["DISPATCH_POLL_REQUEST_SECONDS"] = "0.3"
    dispatch = peer(DRAIN)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with script.started(f"http://127.0.0.1:{port}/api/internal/runners/dispatch") as process:
            wait_for(lambda: "No answer, curl exit code 28" in script.log())
            silent.close()
            with dispatch.serve(port):
                assert process.wait(TIMEOUT_SECONDS) == 0


def test_terminated_poller_reports_and_halts(script: Script) -> None:
    # The signal must not wait for the end of the pause.
    script.variables["DISPATCH_POLL_SECONDS"] = "1000"

    with peer(NOTHING).serve() as url, script.started(url) as process:
        wait_for(lambda: "No job" in script.log())
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 143

    assert (script.root / "halted").read_text() == "143\n"


def test_terminated_poller_terminates_its_runner(script: Script) -> None:
    script.runner('echo ready; trap "echo ended; exit 0" TERM; sleep 1000 & wait')

    with peer(job(JIT)).serve() as url, script.started(url) as process:
        wait_for(lambda: "ready" in script.log())
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 143
        wait_for(lambda: "ended" in script.log())

    assert (script.root / "halted").read_text() == "143\n"


def test_runner_that_is_killed_is_reported(script: Script) -> None:
    script.runner("kill -KILL $$")

    with peer(job(JIT)).serve() as url:
        assert script.run(url) == 137

    assert (script.root / "halted").read_text() == "137\n"


def test_missing_runner_is_reported(script: Script) -> None:
    script.variables["DISPATCH_POLL_RUNNER"] = str(script.root / "missing")

    with peer(job(JIT)).serve() as url:
        assert script.run(url) == 127

    assert (script.root / "halted").read_text() == "127\n"


def test_runner_does_not_update_itself_and_forwards_signals(script: Script) -> None:
    script.runner('printf "%s %s" "$*" "$RUNNER_MANUALLY_TRAP_SIG" >"${0%/*}/arguments"')

    with peer(job(JIT)).serve() as url:
        assert script.run(url) == 0

    assert (script.root / "arguments").read_text() == "--disableupdate 1"


def test_job_that_removes_the_marker_is_not_idle(script: Script) -> None:
    script.variables["TUIST_RUNNER_IDLE_TIMEOUT_SECONDS"] = "1"
    script.runner(
        f'sh "$ACTIONS_RUNNER_HOOK_JOB_STARTED"; rm "{script.folder}/job-started"; sleep 2; exit 5'
    )

    with peer(job(JIT)).serve() as url:
        assert script.run(url) == 5


def test_runner_with_a_worker_process_is_not_idle(script: Script) -> None:
    worker = script.root / "Some.Worker"
    worker.write_bytes(Path("/bin/sleep").read_bytes())
    worker.chmod(0o700)
    script.variables |= {
        "TUIST_RUNNER_IDLE_TIMEOUT_SECONDS": "1",
        "DISPATCH_POLL_WORKER": worker.name,
    }
    script.runner(f'"{worker}" 2; exit 5')

    with peer(job(JIT)).serve() as url:
        assert script.run(url) == 5


def test_vm_without_shares_or_address_of_the_endpoint_is_halted(script: Script) -> None:
    script.variables |= {
        "DISPATCH_POLL_SHARES": str(script.root / "missing"),
        "DISPATCH_POLL_HALT": f": >'{script.root}/halted'",
    }

    assert script.run("") == 1
    assert (script.root / "halted").exists()


def test_temporary_folder_is_private(script: Script) -> None:
    temporary = script.root / "tmp"
    temporary.mkdir()
    script.variables |= {"DISPATCH_POLL_FOLDER": "", "TMPDIR": str(temporary)}
    script.runner('stat -c %a "${ACTIONS_RUNNER_HOOK_JOB_STARTED%/*}" >"${0%/*}/mode"; umask')

    with peer(job(JIT)).serve() as url:
        assert script.run(url) == 0

    assert (script.root / "mode").read_text() == "700\n"
    # Files of the job are as readable as ever.
    assert "0022" in script.log()
    assert list(temporary.glob("*/answer")) == []


def test_programs_of_a_simulated_mac_suffice(tmp_path: Path) -> None:
    mac = MacFolder(tmp_path / "mac")
    mac.lay_out({})
    script = Script(tmp_path / "script")
    write_token(script.env, TOKEN)
    script.runner(f'{RECORD}; sh "$ACTIONS_RUNNER_HOOK_JOB_STARTED"; exit 4')
    script.variables |= {
        "PATH": str(mac.programs),
        "TUIST_RUNNER_IDLE_TIMEOUT_SECONDS": "100",
        "DISPATCH_POLL_HALT": ":",
    }

    with peer(NOTHING, job(JIT)).serve() as url:
        assert script.run(url) == 4

    assert (script.root / "configuration").read_text() == JIT
    assert "not found" not in script.log()


def test_shellcheck_reports_nothing() -> None:
    files = [guest_process.script_path(), str(RUNNER)]

    checked = run_program(["shellcheck", "--shell=sh", *files])

    assert (checked.returncode, checked.stdout) == (0, "")


def test_script_is_executable() -> None:
    found = subprocess.run(["test", "-x", guest_process.script_path()], check=False)

    assert found.returncode == 0
