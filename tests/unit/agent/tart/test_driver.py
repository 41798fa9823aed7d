from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.programs import ProgramMissing, ProgramResult
from bramley.agent.tart import failures
from bramley.agent.tart.driver import Credentials, RunOptions, Share
from bramley.agent.tart.output import ListedVm, VmFacts
from bramley.base import errors
from bramley.base.secret import Secret
from tests.unit.agent.tart.fakes import BINARY, Programs, a_tart, a_vm_on_disk

MISSING = ProgramResult(2, stderr='the specified VM "vm" does not exist\n')
DIGEST = "sha256:" + "ab" * 32


async def test_pull_reports_its_lines_and_gets_credentials_by_environment_only(
    tmp_path: Path,
) -> None:
    programs = Programs(pull=ProgramResult(0, stdout="pulling disk...\n5%\n100%\n"))
    lines: list[str] = []

    await a_tart(tmp_path, programs).pull(
        "registry/image:1",
        credentials=Credentials("registry", "anna", Secret("hush")),
        concurrency=8,
        on_line=lines.append,
    )

    assert programs.calls == [(BINARY, "pull", "registry/image:1", "--concurrency", "8")]
    assert programs.environments == [
        {
            "TART_HOME": str(tmp_path),
            "TART_NO_AUTO_PRUNE": "1",
            "CI": "1",
            "TART_REGISTRY_HOSTNAME": "registry",
            "TART_REGISTRY_USERNAME": "anna",
            "TART_REGISTRY_PASSWORD": "hush",
        }
    ]
    assert lines == ["pulling disk...", "5%", "100%"]


async def test_every_command_disables_automatic_pruning(tmp_path: Path) -> None:
    programs = Programs()

    await a_tart(tmp_path, programs).clone("golden", "vm")
    _, environment = a_tart(tmp_path, programs).run_argv("vm")

    for each in (*programs.environments, environment):
        assert each == {"TART_HOME": str(tmp_path), "TART_NO_AUTO_PRUNE": "1"}


async def test_clone_never_replaces_a_vm(tmp_path: Path) -> None:
    a_vm_on_disk(tmp_path, "vm", "disk.img")
    programs = Programs()

    with pytest.raises(errors.AlreadyExists):
        await a_tart(tmp_path, programs).clone("golden", "vm")

    assert programs.calls == []


QUOTE = "\N{RIGHT SINGLE QUOTATION MARK}"
DISTURBED = [
    f"Error: The file “config.json” doesn{QUOTE}t exist.",
    f"Error: The file “config.json” couldn{QUOTE}t be opened because there is no such file.",
    f"Error: The data couldn{QUOTE}t be read because it isn{QUOTE}t in the correct format.",
]


@pytest.mark.parametrize("stderr", DISTURBED)
async def test_clone_that_another_command_disturbed_is_repeated_once(
    stderr: str, tmp_path: Path
) -> None:
    disturbed = ProgramResult(1, stderr=stderr)
    programs = Programs(clone=[disturbed, ProgramResult(0)])

    await a_tart(tmp_path, programs).clone("golden", "vm")
    programs.answers["clone"] = disturbed
    with pytest.raises(failures.Disturbed):
        await a_tart(tmp_path, programs).clone("golden", "vm")

    assert len(programs.calls) == 4


async def test_other_failed_clone_is_not_repeated(tmp_path: Path) -> None:
    programs = Programs(clone=ProgramResult(1, stderr="the disk is upset"))

    with pytest.raises(failures.TartFailed):
        await a_tart(tmp_path, programs).clone("golden", "vm")

    assert len(programs.calls) == 1


async def test_size_and_identity_are_set_in_one_call(tmp_path: Path) -> None:
    programs = Programs()

    await a_tart(tmp_path, programs).set(
        "vm", cpu=4, memory_mb=8192, random_mac=True, random_serial=True
    )

    expected = ("--cpu", "4", "--memory", "8192", "--random-mac", "--random-serial")
    assert programs.calls == [(BINARY, "set", "vm", *expected)]


async def test_nothing_is_set_without_a_size_or_identity(tmp_path: Path) -> None:
    programs = Programs()

    await a_tart(tmp_path, programs).set("vm")

    assert programs.calls == []


@pytest.mark.parametrize(
    "finished", [ProgramResult(0), MISSING, ProgramResult(2, stderr='VM "vm" is not running\n')]
)
async def test_stopping_a_stopped_vm_succeeds(tmp_path: Path, finished: ProgramResult) -> None:
    programs = Programs(stop=finished)

    await a_tart(tmp_path, programs).stop("vm", timedelta(seconds=30))

    assert programs.calls == [(BINARY, "stop", "vm", "--timeout", "30")]


async def test_deleting_a_missing_vm_succeeds(tmp_path: Path) -> None:
    await a_tart(tmp_path, Programs(delete=MISSING)).delete("vm")


@pytest.mark.parametrize(
    "finished",
    [
        ProgramResult(127, stderr="/usr/local/bin/tart: exec: tart.app: not found\n"),
        ProgramResult(1, stderr="sh: tart: command not found\n"),
        ProgramResult(127, stderr="env: tart does not exist\n"),
    ],
)
async def test_missing_program_is_not_a_missing_vm(tmp_path: Path, finished: ProgramResult) -> None:
    tart = a_tart(tmp_path, Programs(delete=finished, get=finished))

    with pytest.raises(failures.TartFailed):
        await tart.delete("vm")
    with pytest.raises(failures.TartFailed):
        await tart.get("vm")


async def test_tart_that_is_not_installed_is_an_error(tmp_path: Path) -> None:
    class Missing(Programs):
        async def run(self, *_, **__):  # type: ignore[no-untyped-def]  # noqa: ANN002,ANN003,ANN202
            raise ProgramMissing("tart cannot be run")

    with pytest.raises(ProgramMissing):
        await a_tart(tmp_path, Missing()).get("vm")


async def test_facts_are_read_with_any_type_of_size(tmp_path: Path) -> None:
    stdout = '{"CPU" : 4, "Size" : "12.345", "Disk" : 50, "Memory" : 8192, "State" : "suspended", "X" : []}'

    facts = await a_tart(tmp_path, Programs(get=ProgramResult(0, stdout=stdout))).get("vm")

    assert facts == VmFacts(cpu=4, memory_mb=8192, disk_gb=50)


async def test_there_are_no_facts_of_a_missing_vm(tmp_path: Path) -> None:
    assert await a_tart(tmp_path, Programs(get=MISSING)).get("vm") is None


async def test_lists_of_old_and_new_releases_are_read(tmp_path: Path) -> None:
    stdout = """[
      {"Name":"ghcr.io\\/a\\/b:1","Source":"oci","Size":12,"Accessed":"2026-01-01T00:00:00Z"},
      {"Source":"OCI","Name":"ghcr.io\\/a\\/b:2","Size":"13.5"},
      {"Source":"local","Name":"vm","Running":true}
    ]"""

    listed = await a_tart(tmp_path, Programs(list=ProgramResult(0, stdout=stdout))).list()

    assert listed == [
        ListedVm("ghcr.io/a/b:1", is_local=False, size_gb=12),
        ListedVm("ghcr.io/a/b:2", is_local=False, size_gb=13.5),
        ListedVm("vm", is_local=True, size_gb=0),
    ]


async def test_failed_list_is_retried_once(tmp_path: Path) -> None:
    failing, fine = ProgramResult(1, stderr="Error: no such file"), ProgramResult(0, stdout="[]")
    programs = Programs(list=[failing, fine])

    assert await a_tart(tmp_path, programs).list() == []


async def test_list_that_fails_twice_is_an_error(tmp_path: Path) -> None:
    failing = ProgramResult(1, stderr="Error: no such file")

    with pytest.raises(failures.TartFailed, match="no such file"):
        await a_tart(tmp_path, Programs(list=[failing, failing])).list()


@pytest.mark.parametrize("stdout", ["", "{}", "[1]", '[{"Name":"a"}]', "Usage: tart"])
async def test_error_for_an_invalid_list_names_the_command(tmp_path: Path, stdout: str) -> None:
    finished = ProgramResult(0, stdout=stdout)

    with pytest.raises(failures.UnreadableOutput, match="tart list"):
        await a_tart(tmp_path, Programs(list=[finished, finished])).list()


@pytest.mark.parametrize("stdout", ["", "[]", "null", '{"CPU":"x","Memory":1}'])
async def test_error_for_invalid_facts_names_the_command(tmp_path: Path, stdout: str) -> None:
    with pytest.raises(failures.UnreadableOutput, match="tart get"):
        await a_tart(tmp_path, Programs(get=ProgramResult(0, stdout=stdout))).get("vm")


async def test_address_is_parsed_or_missing(tmp_path: Path) -> None:
    none = ProgramResult(1, stderr="no IP address found, is your VM running?\n")
    programs = Programs(ip=[ProgramResult(0, stdout="192.168.64.7\n"), none, MISSING])
    tart = a_tart(tmp_path, programs)

    found = [await tart.ip("vm", timedelta(seconds=2)) for _ in range(3)]

    assert found == ["192.168.64.7", None, None]
    assert programs.calls[0] == (BINARY, "ip", "vm", "--wait", "2")


async def test_invalid_address_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(failures.UnreadableOutput, match="tart ip"):
        await a_tart(tmp_path, Programs(ip=ProgramResult(0, stdout="later\n"))).ip(
            "vm", timedelta(0)
        )


async def test_exit_code_of_the_guests_command_is_returned(tmp_path: Path) -> None:
    programs = Programs(exec=ProgramResult(3, stdout="out", stderr="err"))

    finished = await a_tart(tmp_path, programs).exec("vm", ["/bin/df", "-k"], timedelta(seconds=5))

    assert finished == ProgramResult(3, stdout="out", stderr="err")
    assert programs.calls == [(BINARY, "exec", "vm", "/bin/df", "-k")]


async def test_version_is_read(tmp_path: Path) -> None:
    programs = Programs(version=ProgramResult(0, stdout="2.32.1\n"))

    assert await a_tart(tmp_path, programs).version() == "2.32.1"


def test_run_is_headless_with_shares_and_an_unsynced_disk(tmp_path: Path) -> None:
    shares = [Share("env", Path("/d/vm"), is_read_only=True), Share("status", Path("/d/vm/status"))]

    argv, _ = a_tart(tmp_path, Programs()).run_argv("vm", RunOptions(shares))

    assert argv == (
        *(BINARY, "run", "vm", "--no-graphics"),
        *("--root-disk-opts", "sync=none,caching=cached"),
        *("--dir", "env:/d/vm:ro", "--dir", "status:/d/vm/status"),
    )


def test_vm_exists_when_all_its_files_do(tmp_path: Path) -> None:
    a_vm_on_disk(tmp_path, "whole")
    a_vm_on_disk(tmp_path, "half", "config.json", "disk.img")
    tart = a_tart(tmp_path, Programs())

    assert [tart.has_vm(name) for name in ("whole", "half", "none")] == [True, False, False]


def cached(home: Path, host: str) -> Path:
    folder = home / "cache/OCIs" / host / "ns/repo" / DIGEST
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    folder.with_name("1").symlink_to(folder)
    return folder


@pytest.mark.parametrize("name", ["host:5000/ns/repo:1", f"host:5000/ns/repo@{DIGEST}"])
def test_cached_image_is_resolved_to_its_digest(tmp_path: Path, name: str) -> None:
    cached(tmp_path, "host%3A5000")

    assert a_tart(tmp_path, Programs()).resolve(name) == DIGEST


@pytest.mark.parametrize("name", ["host/ns/repo:2", "host/ns/repo", "vm", "host/ns/repo@sha256:1"])
def test_uncached_image_has_no_digest(tmp_path: Path, name: str) -> None:
    cached(tmp_path, "host")

    assert a_tart(tmp_path, Programs()).resolve(name) is None


def test_incomplete_image_has_no_digest(tmp_path: Path) -> None:
    (cached(tmp_path, "host") / "config.json").unlink()
    tart = a_tart(tmp_path, Programs())

    assert tart.resolve("host/ns/repo:1") is None
    assert tart.resolve(f"host/ns/repo@{DIGEST}") is None


async def test_guest_of_a_foreign_process_is_linux_only_by_a_readable_configuration(
    tmp_path: Path,
) -> None:
    tart = a_tart(tmp_path, Programs())
    for home in (tmp_path, tmp_path / "other"):
        (a_vm_on_disk(home, "ubuntu") / "config.json").write_text('{"os": "linux"}')
    # Names as they stand on the command lines of other programs.
    names = ("", ".", "..", "../ubuntu", "a/b", "ghcr.io/x/y:1", "unknown")

    assert tart.is_linux("ubuntu")
    assert tart.is_linux("ubuntu", str(tmp_path / "other"))
    assert not any(tart.is_linux(name, home) for name in names for home in ("", str(tmp_path)))
