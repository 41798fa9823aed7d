"""The classification of tart's known error messages and exit codes."""

from __future__ import annotations

import pytest

from bramley.agent.programs import ProgramResult
from bramley.agent.tart import failures, references
from bramley.agent.tart.failures import (
    AlreadyRunning,
    IncompleteVm,
    IsRunning,
    LimitReached,
    NoSession,
    NoSpace,
    RunEnd,
    TartFailed,
    Throttled,
    Unusable,
)

OUTPUTS: list[tuple[int, str, type[TartFailed]]] = [
    (1, "Error: No space left on device", NoSpace),
    (1, "Error: There isn\N{RIGHT SINGLE QUOTATION MARK}t enough space.", NoSpace),
    (1, "Error: there isn't enough space", NoSpace),
    (1, "The number of VMs exceeds the system limit (other running VMs: a, b)", LimitReached),
    (1, 'Error Domain=VZErrorDomain Code=6 "The maximum supported number of active virtual machines"', LimitReached),
    (1, 'Error Domain=VZErrorDomain Code=1 "Internal error: failed to start"', NoSession),
    (1, 'Error Domain=VZErrorDomain Code=-9 "HostKey"', NoSession),
    (1, "Keychain returned unsuccessful status -25308", NoSession),
    (2, 'VM "a" is already running!', AlreadyRunning),
    (1, 'Error Domain=VZErrorDomain Code=2 "Failed to lock auxiliary storage"', AlreadyRunning),
    (1, 'VM "a" is running', IsRunning),
    (1, "VM is missing some of its files", IncompleteVm),
    (1, 'Error: UnexpectedHTTPStatusCode(when: "pulling manifest", code: 429, details: "")', Throttled),
    (1, 'Error: UnexpectedHTTPStatusCode(when: "pulling blob", code: 503, details: "")', Throttled),
    (1, 'Error: UnexpectedHTTPStatusCode(when: "pulling manifest", code: 404, details: "")', TartFailed),
    (1, "unsupported legacy disk media type", Unusable),
    (1, "host macOS version is outdated", Unusable),
    (1, "VM should have 4 CPU cores at minimum (requested 2)", Unusable),
    (64, "Error: Unknown option", Unusable),
    (1, "Error: something new", TartFailed),
    (-9, "No space left on device", TartFailed),
    (2, "VM does not exist", TartFailed),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text", "kind"), OUTPUTS)
def test_failure_is_classified_by_exit_code_and_output(
    code: int, text: str, kind: type[TartFailed]
) -> None:
    found = failures.failure("clone", ProgramResult(code, stderr=text))

    assert type(found) is kind
    assert (found.operation, found.code, found.stderr) == ("clone", code, text)
    assert text in str(found)


def test_exit_code_zero_is_no_failed_start() -> None:
    assert failures.start_failure(0, "guest has stopped the virtual machine") is None
    assert isinstance(failures.start_failure(1, "exceeds the system limit"), TartFailed)


@pytest.mark.parametrize(
    ("image", "repository", "normalized"),
    [
        ("ghcr.io/a/b", "ghcr.io/a/b", "ghcr.io/a/b:latest"),
        ("ghcr.io/a/b:1", "ghcr.io/a/b", "ghcr.io/a/b:1"),
        ("localhost:5000/a:1", "localhost:5000/a", "localhost:5000/a:1"),
        ("h:5000/a/b@sha256:" + "0" * 64, "h:5000/a/b", "h:5000/a/b@sha256:" + "0" * 64),
        ("h/a:1@sha256:" + "0" * 64, "h/a", "h/a@sha256:" + "0" * 64),
    ],
)
def test_remote_name_is_parsed(image: str, repository: str, normalized: str) -> None:
    reference = references.parse(image)

    assert reference is not None
    assert (reference.repository, reference.normalized) == (repository, normalized)


STRANGE = ["h/a\0b", "h/a b", "h/a:1\n2", "h/\x1b[31m", "h/a$(x)", "h/a:", "h:1:2/a", ":1/a"]
OPTIONS = ["-h/a", "--insecure/a", "h/-a", "h/a:-1", "h/a/-b"]
LONG = ["h/" + "a" * 129, "h/" + "a/" * 200 + "b", "h/a:" + "1" * 129]


@pytest.mark.parametrize(
    "image",
    ["vm", "", "/a", "h/", "h/a@sha256:1", "h/../a", "h//a", "h/ä", *STRANGE, *OPTIONS, *LONG],
)
def test_other_names_are_not_remote(image: str) -> None:
    assert references.parse(image) is None


HALT = "guest has stopped the virtual machine"
CRASH = f'{HALT} due to error: Error Domain=VZErrorDomain Code=1 "Internal Virtualization error."'
LOST = "virtual machine's network attachment <VZVirtioNetworkDevice: 0x1> has been disconnected with error: x"
STOP = "Stopping VM..."
SUSPEND = "pausing VM to take a snapshot..."


@pytest.mark.parametrize(
    ("lines", "end"),
    [
        ([], None),
        ([""], None),
        (["VNC server is running at vnc://:REDACTED@127.0.0.1:5900"], None),
        ([HALT], RunEnd.HALTED),
        ([CRASH], RunEnd.CRASHED),
        ([LOST], RunEnd.DISCONNECTED),
        ([STOP], RunEnd.STOPPED),
        ([SUSPEND, "creating a snapshot...", "snapshot created successfully!"], RunEnd.SUSPENDED),
        # The first line is the cause, and a clean end excludes all others.
        ([CRASH, "UserInfo={", "}"], RunEnd.CRASHED),
        ([CRASH, STOP], RunEnd.CRASHED),
        ([STOP, CRASH], RunEnd.STOPPED),
        ([STOP, HALT], RunEnd.STOPPED),
        ([HALT, STOP], RunEnd.STOPPED),
        ([LOST, HALT], RunEnd.DISCONNECTED),
        ([HALT[:-5]], None),
        # On a full disk the line of a crash is cut off.
        ([CRASH[: len(HALT) + 3]], RunEnd.CRASHED),
        ([CRASH[: len(HALT) + 11]], RunEnd.CRASHED),
        ([f"{HALT}."], RunEnd.HALTED),
    ],
)
def test_end_of_a_run_by_its_output(lines: list[str], end: RunEnd | None) -> None:
    found = failures.end_of_run("\n".join(lines))

    assert (found.end if found else None) is end


def test_quoted_line_is_bounded() -> None:
    found = failures.end_of_run(CRASH + "x" * 100_000)

    assert found is not None
    assert len(found.text) <= 500


def test_quoted_line_has_no_control_characters() -> None:
    found = failures.end_of_run(f"{CRASH} \x1b]0;title\x07\0")

    assert found is not None
    assert found.text.isprintable()
