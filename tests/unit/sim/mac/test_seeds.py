from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

from tests import virtual_time
from tests.unit.sim.mac.worlds import a_mac, now


async def story(root: Path, seed: int) -> list[object]:
    told: list[object] = []
    async with a_mac(root, seed=seed, work=7) as world:
        world.side.on_checkpoint = lambda moment: told.append((now(), moment))
        for vm in ("a", "b"):
            await world.running_vm(vm)
        told.append((await world.tart("list", "--format", "json")).stdout)
        told.extend([await world.side.runs.wait(vm) for vm in ("a", "b")])
        told.append(fingerprint(world.mac.folders.tart_home))
    return told


def fingerprint(folder: Path) -> str:
    """Return one number for every name below a folder and each small file's content."""
    seen = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(place, name)
            content = path.read_bytes() if path.stat().st_size < 100_000 else b""
            seen.update(str(path.relative_to(folder)).encode() + content)
    return seen.hexdigest()


def test_the_same_seed_gives_the_same_run_to_the_last_byte(tmp_path: Path) -> None:
    one, two, other = (
        virtual_time.run(story(tmp_path / name, seed))
        for name, seed in (("one", 1), ("two", 1), ("other", 2))
    )

    assert one == two
    assert one != other


async def test_a_whole_life_of_a_vm_is_quick(tmp_path: Path) -> None:
    import time

    async with a_mac(tmp_path, work=60) as world:
        await world.vm("golden")
        began = time.process_time()
        for number in range(20):
            vm = f"vm-{number}"
            await world.tart("clone", "golden", vm)
            await world.tart("set", vm, "--random-mac", "--random-serial")
            await world.start(vm)
            await world.tart("ip", vm, "--wait", "60")
            await world.side.runs.wait(vm)
            await world.tart("delete", vm)
            world.side.runs.forget(vm)
        each = (time.process_time() - began) / 20

        assert now() > 20 * 60
        # A tenth of it on a quick machine; what matters is that nobody waits or syncs.
        assert each < 0.1
        assert await asyncio.sleep(0, result=True)
