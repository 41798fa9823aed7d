from __future__ import annotations

import errno
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from bramley.agent import atomic_file
from bramley.agent.ledger import ImageRecord, Ledger, LedgerUnavailable, VmRecord, VmState
from bramley.base import errors

DIGEST = "sha256:" + "a" * 64


def a_vm(vm: str = "ns-pod-0123", *, state: VmState = VmState.CLAIMED) -> VmRecord:
    return VmRecord(
        vm=vm,
        namespace="ns",
        pod="pod",
        uid=f"uid-of-{vm}",
        image="registry/image:1",
        state=state,
        created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )


def test_records_are_read_by_the_next_agent(tmp_path: Path) -> None:
    record = a_vm(state=VmState.STARTED)
    Ledger(tmp_path).put(record)

    later = Ledger(tmp_path)

    assert later.vm(record.vm) == record
    assert later.vms() == {record.vm: record}
    assert later.find_by_uid(record.uid) == record
    assert later.unreadable() == []


def test_images_are_kept_by_digest(tmp_path: Path) -> None:
    record = ImageRecord(digest=DIGEST, references=("registry/image:1",), is_pulled=True)
    Ledger(tmp_path).put_image(record)

    later = Ledger(tmp_path)

    assert later.image(DIGEST) == record
    assert later.images() == {DIGEST: record}
    assert (tmp_path / "images" / f"{'a' * 64}.json").exists()


def test_dropped_record_is_gone_and_dropping_twice_is_no_error(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.put(a_vm())
    ledger.put_image(ImageRecord(digest=DIGEST))

    for _ in range(2):
        ledger.drop(a_vm().vm)
        ledger.drop_image(DIGEST)

    assert ledger.vm(a_vm().vm) is None
    assert Ledger(tmp_path).vms() == {}
    assert Ledger(tmp_path).images() == {}


def test_records_are_private(tmp_path: Path) -> None:
    Ledger(tmp_path).put(a_vm())

    record = next((tmp_path / "vms").iterdir())

    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"version":1}', b'{"version":"x"}', b"[]", b"\xff\xfe", b"null"]
)
def test_unreadable_record_is_quarantined_and_listed(tmp_path: Path, content: bytes) -> None:
    Ledger(tmp_path).put(a_vm("healthy"))
    (tmp_path / "vms" / "broken.json").write_bytes(content)

    ledger = Ledger(tmp_path)

    assert list(ledger.vms()) == ["healthy"]
    assert [(each.kind, each.name) for each in ledger.unreadable()] == [("vms", "broken")]
    assert ledger.unreadable()[0].path.read_bytes() == content
    assert [each.name for each in Ledger(tmp_path).unreadable()] == ["broken"]


def test_dropping_a_name_removes_its_quarantined_record(tmp_path: Path) -> None:
    Ledger(tmp_path)
    (tmp_path / "vms" / "broken.json").write_bytes(b"{")
    ledger = Ledger(tmp_path)

    ledger.drop("broken")

    assert ledger.unreadable() == []


def test_records_of_a_newer_version_are_refused_and_kept(tmp_path: Path) -> None:
    Ledger(tmp_path).put(a_vm("newer"))
    path = tmp_path / "vms" / "newer.json"
    content = msgspec.json.encode({**msgspec.to_builtins(a_vm("newer")), "version": 2})
    path.write_bytes(content)

    with pytest.raises(errors.BadConfiguration, match="version 2"):
        Ledger(tmp_path)

    assert path.read_bytes() == content


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    Ledger(tmp_path).put(a_vm())
    path = tmp_path / "vms" / f"{a_vm().vm}.json"
    path.write_bytes(msgspec.json.encode({**msgspec.to_builtins(a_vm()), "colour": "red"}))

    assert Ledger(tmp_path).vm(a_vm().vm) == a_vm()


def test_state_never_moves_back(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.put(a_vm(state=VmState.STARTED))

    with pytest.raises(ValueError, match="cannot be cloned again"):
        ledger.put(a_vm(state=VmState.CLONED))

    assert Ledger(tmp_path).vms()[a_vm().vm].state is VmState.STARTED


def test_temporary_file_of_a_crash_is_not_read(tmp_path: Path) -> None:
    Ledger(tmp_path).put(a_vm())
    (tmp_path / "vms" / "other.json.tmp").write_bytes(b"{")

    ledger = Ledger(tmp_path)

    assert list(ledger.vms()) == [a_vm().vm]
    assert [path.name for path in (tmp_path / "vms").iterdir()] == [f"{a_vm().vm}.json"]


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden"])
def test_name_cannot_escape_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a valid record name"):
        Ledger(tmp_path).put(a_vm(name))


def test_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path)
    ledger.put(a_vm(state=VmState.CLONED))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(LedgerUnavailable, match="No space left"):
            ledger.put(a_vm(state=VmState.STARTED))

    assert ledger.vms()[a_vm().vm].state is VmState.CLONED
    assert Ledger(tmp_path).vms() == ledger.vms()


def test_record_is_synced_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    really = os.fsync

    def note(handle: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        seen.append(("folder" if is_folder else "file", (tmp_path / "a").exists()))
        really(handle)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(atomic_file, "_FULL_SYNC", None)
    atomic_file.replace(tmp_path / "a", b"1")

    assert seen == [("file", False), ("folder", True)]


def test_ledger_that_need_not_be_durable_syncs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise AssertionError

    monkeypatch.setattr(os, "fsync", refuse)
    ledger = Ledger(tmp_path, durable=False)
    ledger.put(a_vm())
    ledger.drop(a_vm().vm)

    assert Ledger(tmp_path, durable=False).vms() == {}
