"""Batches: commands in order until one fails, under a claim that a newer run replaces, and ended with the connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.api.names import host as names
from bramley.host.claim import Claim, Guard, conflict
from bramley.host.commands import (
    Batchable,
    Folder,
    Link,
    Probe,
    ReadFile,
    Remove,
    Rename,
    Run,
    RunProbe,
    Seal,
    Wait,
    Write,
)
from bramley.host.rendering import batch_scripts, probe_scripts
from tests.unit.host.rendering.shells import (
    OWNER,
    PROBE_TOKEN,
    TOKEN,
    WITHIN,
    Shell,
    available,
    read_to_end,
    tree,
)
from tests.unit.host.rendering.test_process_timeout import group_of, pid_of, wait_for_end_of

OLD, NEW = Claim(run="1", by="old"), Claim(run="2", by="new")
OTHER_TOKEN = "1111111111111111"


@pytest.fixture(params=available())
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    return Shell.make(tmp_path, request.param)


@pytest.fixture
def mac(tmp_path: Path) -> Path:
    folder = tmp_path / "mac"
    folder.mkdir()
    return folder


def run(*argv: str, **options: object) -> Run:
    return Run(argv=argv, purpose="p", as_root=True, **options)  # type: ignore[arg-type]


def sh(text: str, **options: object) -> Run:
    return run("sh", "-c", text, **options)


def write(path: Path, content: bytes = b"new\0'content") -> Write:
    return Write(path=str(path), content=content, purpose="p", owner=OWNER)


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WITHIN
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_all_kinds_of_commands_are_executed_in_order(shell: Shell, mac: Path) -> None:
    commands: list[Batchable] = [
        Folder(path=str(mac / "d"), purpose="p", owner=OWNER),
        write(mac / "d/f"),
        Rename(path=str(mac / "d/f"), to=str(mac / "d/g"), purpose="p"),
        Link(path=str(mac / "l"), target="d", purpose="p"),
        sh(f"cat >'{mac}/input'", stdin=b"it's\n"),
        Seal(path=str(mac / "d"), purpose="p"),
        Remove(path=str(mac / "d/g"), purpose="p"),
        Wait(probe=RunProbe(("ls", str(mac / "l")), as_root=True), purpose="p"),
        Run(argv=("touch", str(mac / "as-user")), purpose="p"),
    ]

    result = shell.execute_all(commands)

    assert (result.code, result.progress.codes) == (0, dict.fromkeys(range(len(commands)), 0))
    found = tree(mac)
    assert set(found) == {
        "d",
        f"d/{names.SEAL}",
        "l",
        "input",
        "as-user",
    }
    assert (found["l"], found["input"]) == ("-> d", b"it's\n")


def test_batch_stops_at_the_first_failure(shell: Shell, mac: Path) -> None:
    commands: list[Batchable] = [sh("echo one >&2; exit 3"), write(mac / "never")]

    result = shell.execute_all(commands)

    assert (result.code, result.progress.codes) == (3, {0: 3})
    assert batch_scripts.error_output(result.stderr, 0, token=TOKEN) == b"one\n"
    assert tree(mac) == {}


def test_accepted_codes_and_ignored_failures_do_not_stop_it(shell: Shell, mac: Path) -> None:
    commands: list[Batchable] = [
        sh("exit 36", accepted_codes=(0, 36)),
        sh("echo lost; exit 5", ignore_failure=True),
        write(mac / "f", b"x"),
        write(mac / "none/f"),
    ]

    result = shell.execute_all(commands)

    assert result.progress.codes == {0: 36, 1: 5, 2: 0, 3: 125}
    assert batch_scripts.error_output(result.stderr, 1, token=TOKEN) == b"lost\n"
    problem = batch_scripts.error_output(result.stderr, 3, token=TOKEN)
    assert problem == f"the folder {mac}/none does not exist\n".encode()
    assert tree(mac) == {"f": b"x"}


def test_probes_follow_in_the_same_script(shell: Shell, mac: Path) -> None:
    probes: list[Probe] = [ReadFile(str(mac / "f"), as_root=True), RunProbe(("echo", "user"))]

    result = shell.execute_all([write(mac / "f", b"x")], probes=probes)

    (script,) = probe_scripts.render(probes, token=PROBE_TOKEN)
    found = probe_scripts.parse_results(script, token=PROBE_TOKEN, output=result.output)
    assert found[probes[0]] == b"x"
    assert len(found) == 2
    failed = shell.execute_all([sh("exit 3")], probes=probes)
    assert probe_scripts.parse_results(script, token=PROBE_TOKEN, output=failed.output) == {}


def test_wait_ends_with_the_condition_or_its_timeout(shell: Shell, mac: Path) -> None:
    probe = RunProbe(("cat", str(mac / "f")), as_root=True)
    options = {"probe": probe, "interval": timedelta(seconds=0.05), "purpose": "p"}
    short = Wait(**options, timeout=timedelta(seconds=1), text="b")  # type: ignore[arg-type]
    with shell.running_batch([Wait(**options, text="a*'")]) as process:  # type: ignore[arg-type]
        time.sleep(0.2)
        (mac / "f").write_text("xa*'x")
        assert read_to_end(process)
        assert process.returncode == 0

    assert shell.execute_all([short]).progress.codes == {0: 124}
    ignored = Wait(**options, timeout=timedelta(seconds=1), text="b", ignore_failure=True)  # type: ignore[arg-type]
    assert shell.execute_all([ignored, write(mac / "g")]).progress.codes == {0: 124, 1: 0}


def test_refused_sudo_does_not_meet_a_condition(shell: Shell) -> None:
    """Without its mark, the exit code of sudo would look like that of pgrep that found nothing."""
    no_vms = Wait(
        probe=RunProbe(("pgrep", "vm")), code=1, timeout=timedelta(seconds=1), purpose="p"
    )
    shell.install(
        "sudo",
        'case " $* " in *" -u "*) exit 1 ;; esac\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n',
    )

    assert shell.execute_all([run("true"), no_vms]).progress.codes == {0: 0, 1: 124}


def test_batch_ends_with_the_connection(shell: Shell, mac: Path) -> None:
    commands: list[Batchable] = [sh(f"echo $$ >'{mac}/pid'; sleep 600"), write(mac / "never")]
    with shell.running_batch(commands) as process:
        pid = pid_of(mac / "pid")
        for stream in (process.stdout, process.stderr, process.stdin):
            assert stream is not None
            stream.close()

        wait_for_end_of(pid)
        wait_for_end_of(process.pid, *group_of(process.pid))

    assert set(tree(mac)) == {"pid"}


@pytest.mark.parametrize("waits", [False, True])
def test_file_is_completed_without_the_connection_and_nothing_follows(
    shell: Shell, mac: Path, waits: bool
) -> None:
    """A temporary folder must not stay: no later plan would remove it."""
    shell.install("sync", f"echo $$ >'{mac}/pid'; while [ ! -e '{mac}/go' ]; do sleep 0.1; done\n")
    wait = Wait(probe=RunProbe(("false",)), purpose="p", timeout=timedelta(minutes=5))
    commands: list[Batchable] = [
        write(mac / "f", b"x"),
        *([wait] if waits else []),
        write(mac / "never"),
    ]
    if waits:
        shell.install("sync", "exit 0\n")
    with shell.running_batch(commands) as process:
        eventually((mac / "f" if waits else mac / "pid").exists)
        assert process.stdin is not None
        process.stdin.close()
        # Long enough for the watcher to end.
        time.sleep(0.5)
        (mac / "go").touch()
        wait_for_end_of(process.pid, *group_of(process.pid))

    assert set(tree(mac)) - {"pid", "go"} == {"f"}


def test_mac_is_claimed_before_the_first_command(shell: Shell, mac: Path) -> None:
    claim = mac / "claim"
    claim.write_bytes(OLD.guard().content)
    guard = NEW.guard().acquiring(OLD.guard().content)

    result = shell.execute_all([sh(f"cp '{claim}' '{mac}/seen'")], guard=guard, claim=str(claim))

    assert (result.code, result.progress.codes) == (0, {0: 0})
    assert tree(mac) == {"claim": guard.content, "seen": guard.content}


@pytest.mark.parametrize(
    "guard", [OLD.guard(), OLD.guard().acquiring(None)], ids=["held", "acquiring"]
)
def test_run_without_the_claim_is_refused(shell: Shell, mac: Path, guard: Guard) -> None:
    claim = mac / "claim"
    claim.write_bytes(NEW.guard().content)

    result = shell.execute_all([write(mac / "never")], guard=guard, claim=str(claim))

    assert result.code == 125
    assert result.progress.refused == NEW.guard().content
    assert "(new)" in str(conflict(result.progress.refused))
    assert tree(mac) == {"claim": NEW.guard().content}


def test_newer_run_waits_for_the_command_of_the_older_one(shell: Shell, mac: Path) -> None:
    """The older run ends its command, and its next one is refused; only then does the newer run begin."""
    claim = mac / "claim"
    claim.write_bytes(OLD.guard().content)
    text = f"echo $$ >'{mac}/pid'; while [ ! -e '{mac}/go' ]; do sleep 0.1; done; echo old >>'{mac}/log'"
    older: list[Batchable] = [sh(text), sh(f"echo never >>'{mac}/log'")]
    newer = [sh(f"echo new >>'{mac}/log'")]
    with shell.running_batch(older, guard=OLD.guard(), claim=str(claim)) as first:
        pid_of(mac / "pid")
        guard = NEW.guard().acquiring(OLD.guard().content)
        with shell.running_batch(newer, guard=guard, claim=str(claim), token=OTHER_TOKEN) as second:
            eventually(lambda: claim.read_bytes() == guard.content)
            assert not (mac / "log").exists()
            (mac / "go").touch()
            read_to_end(second)
        output, _ = read_to_end(first)

    assert (mac / "log").read_text() == "old\nnew\n"
    refused = batch_scripts.parse_progress(output, token=TOKEN)
    assert (first.returncode, refused.refused, refused.codes) == (125, guard.content, {0: 0})
    assert set(tree(mac)) == {"claim", "log", "go", "pid"}


@pytest.mark.long
def test_command_that_does_not_end_is_stopped_by_a_newer_run(shell: Shell, mac: Path) -> None:
    claim = mac / "claim"
    claim.write_bytes(OLD.guard().content)
    older: list[Batchable] = [sh(f"echo $$ >'{mac}/pid'; sleep 600"), write(mac / "never")]
    with shell.running_batch(older, guard=OLD.guard(), claim=str(claim)) as first:
        pid = pid_of(mac / "pid")
        guard = NEW.guard().acquiring(OLD.guard().content)
        result = shell.execute_all(
            [write(mac / "f", b"x")], guard=guard, claim=str(claim), token=OTHER_TOKEN
        )
        wait_for_end_of(pid)
        output, _ = read_to_end(first)

    assert result.progress.codes == {0: 0}
    assert batch_scripts.parse_progress(output, token=TOKEN).refused == guard.content
    assert set(tree(mac)) == {"claim", "f", "pid"}


def test_stopped_command_is_reported_as_refused_although_its_failure_is_ignored(
    shell: Shell, mac: Path
) -> None:
    claim = mac / "claim"
    claim.write_bytes(OLD.guard().content)
    (mac / "newer").write_bytes(NEW.guard().content)
    # As a newer run does it: the claim first, and then the processes of the batch, its watcher among them.
    text = f"""
        mv '{mac}/newer' '{claim}'
        link=$(readlink '{claim}.{TOKEN}')
        kill -KILL $(pgrep -P "${{link%% *}}" | grep -vx "$PPID")
        exit 1"""
    commands: list[Batchable] = [sh(text, ignore_failure=True), write(mac / "never")]

    result = shell.execute_all(commands, guard=OLD.guard(), claim=str(claim))

    assert result.progress.refused == NEW.guard().content
    assert set(tree(mac)) == {"claim"}


@pytest.mark.parametrize("expected", [None, OLD.guard().content], ids=["none", "other"])
def test_claim_that_cannot_be_written_is_no_conflict(
    shell: Shell, mac: Path, expected: bytes | None
) -> None:
    """As on a full disk: to wait for another run would not help."""
    claim = mac / "claim"
    if expected:
        claim.write_bytes(expected)
    shell.install("mv", "exit 1\n")

    result = shell.execute_all(
        [write(mac / "never")], guard=NEW.guard().acquiring(expected), claim=str(claim)
    )

    assert (result.code, result.progress.is_refused, result.progress.started) == (125, False, 0)
    problem = batch_scripts.error_output(result.stderr, 0, token=TOKEN)
    assert problem == f"{claim} cannot be written\n".encode()
    assert set(tree(mac)) == ({"claim"} if expected else set())


def test_link_of_a_killed_run_blocks_no_other(shell: Shell, mac: Path) -> None:
    """Nor does a process that has got the same id."""
    claim = mac / "claim"
    for number, holder in enumerate(("999999 0", "1 0")):
        (mac / f"claim.{number:016x}").symlink_to(holder)
        (mac / f"claim.{number:016x}.new").touch()

    result = shell.execute_all(
        [write(mac / "f", b"x")], guard=NEW.guard().acquiring(None), claim=str(claim)
    )

    assert (result.code, set(tree(mac))) == (0, {"claim", "f"})


def test_former_leader_is_refused_while_a_newer_one_works(shell: Shell, mac: Path) -> None:
    """The newer leader claimed the Mac after the former one had read the claim and before it wrote its own."""
    claim = mac / "claim"
    leader, former = (
        Claim(run=f"{epoch}", by=f"leader {epoch}", epoch=epoch).guard() for epoch in (5, 4)
    )
    working = [sh(f"echo $$ >'{mac}/pid'; sleep 600")]
    with shell.running_batch(working, guard=leader.acquiring(None), claim=str(claim)):
        pid_of(mac / "pid")
        claim.unlink()
        result = shell.execute_all(
            [write(mac / "never")],
            guard=former.acquiring(None),
            claim=str(claim),
            token=OTHER_TOKEN,
        )

    assert result.progress.is_refused
    assert not (mac / "never").exists()


def test_contents_are_not_in_the_process_table(shell: Shell, mac: Path) -> None:
    script = batch_scripts.render([write(mac / "f", b"canary")], token=TOKEN, user="m1")

    assert "canary" not in script.line
    assert "Y2FuYXJ5" not in script.line
    assert shell.execute_all([write(mac / "f", b"canary")]).code == 0
