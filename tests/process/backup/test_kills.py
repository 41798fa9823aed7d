"""A restore that is killed at any of its steps leaves the old state or the new one, and the next open finds one of them complete."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bramley.apiserver.admin import archives
from bramley.apiserver.auth import bearer_tokens
from bramley.apiserver.pki import private_files
from bramley.apiserver.store.records import Draft, Key
from bramley.apiserver.store.settings import Settings
from bramley.apiserver.store.store import Store
from bramley.app import backup

NOW = datetime(2026, 1, 1, tzinfo=UTC)
# What changes the disk; a kill between two of these is a kill at any moment.
STEPS = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod"})
MARK = Key("configmaps", "default", "mark")
META = b'{"name":"mark","namespace":"default","uid":"u","resourceVersion":"%d"}'
BODY = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":' + META + b',"data":{"text":"%b"}}'
INLINE = Settings(writer_thread=False)


async def put(folder: Path, text: str) -> None:
    async with Store.open(folder, INLINE) as store:
        await store.write(MARK, lambda _, rv: Draft(BODY % (rv, text.encode())))


async def state_of(folder: Path) -> tuple[str, str]:
    """Return which database and which tokens a server would find."""
    async with Store.open(folder, INLINE) as store:
        found = store.get(MARK)
    assert found is not None
    content = (folder / bearer_tokens.FILE).read_text()
    return "new" if b'"new"' in found.body else "old", content


def a_folder(folder: Path, text: str) -> None:
    asyncio.run(put(folder, text))
    private_files.write(folder / bearer_tokens.FILE, text.encode())
    for name in ("ca.crt", "ca.key"):
        private_files.write(folder / "tls" / name, text.encode())


def killed_at(step: int, act: Callable[[], Any]) -> bool:
    """Run in a child that is killed before its n-th step; return whether it was killed."""
    child = os.fork()
    if not child:
        seen = 0

        def audit(event: str, _: tuple[Any, ...]) -> None:
            nonlocal seen
            opens = event == "open" and isinstance(_[1], str) and "w" in _[1]
            if event in STEPS or opens:
                seen += 1
                if seen == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        code = 1
        try:
            sys.addaudithook(audit)
            act()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def test_kill_at_any_step_of_a_restore_leaves_the_old_or_the_new_state(tmp_path: Path) -> None:
    a_folder(tmp_path / "source", "new")
    a_folder(tmp_path / "pristine", "old")
    file = tmp_path / "backup"
    backup.back_up_folder(tmp_path / "source", file)
    found, step, cut = [], 0, True
    while cut:
        step += 1
        target = tmp_path / f"target-{step}"
        shutil.copytree(tmp_path / "pristine", target)

        cut = killed_at(step, lambda at=target: backup.restore(at, file, force=True, now=NOW))  # type: ignore[misc]

        found.append(asyncio.run(state_of(target)))
        moved = [path for path in target.glob("before-restore-*") if any(path.iterdir())]
        assert bool(moved) == (found[-1][0] == "new")
        # An interrupted restore does not block the next one.
        backup.restore(target, file, force=True, now=NOW)
        assert asyncio.run(state_of(target)) == ("new", "new")

    assert step > 15
    assert set(found) == {("old", "old"), ("new", "new")}
    assert found == sorted(found, reverse=True)


def test_kill_at_any_step_of_a_backup_leaves_no_half_of_it(tmp_path: Path) -> None:
    a_folder(tmp_path / "source", "new")
    file, step = tmp_path / "backup", 1
    while killed_at(step, lambda: backup.back_up_folder(tmp_path / "source", file)):
        if file.exists():
            archives.check(file)
            file.unlink()
        step += 1

    assert step > 5
    assert archives.check(file).revision == 1
