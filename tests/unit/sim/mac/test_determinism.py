from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

from tests import virtual_time
from tests.unit.sim.mac.simulated_macs import now, simulated_mac


async def record_run(root: Path, seed: int) -> list[object]:
    events: list[object] = []
    async with simulated_mac(root, seed=seed, work=7) as host:
        host.agent.on_checkpoint = lambda checkpoint: events.append((now(), checkpoint))
        for vm in ("a", "b"):
            await host.running_vm(vm)
        events.append((await host.tart("list", "--format", "json")).stdout)
        events.extend([await host.agent.runs.wait(vm) for vm in ("a", "b")])
        events.append(fingerprint(host.mac.folders.tart_home))
    return events


def fingerprint(folder: Path) -> str:
    """Return a digest of the names below a folder and of the content of small files."""
    seen = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(place, name)
            content = path.read_bytes() if path.stat().st_size < 100_000 else b""
            seen.update(str(path.relative_to(folder)).encode() + content)
    return seen.hexdigest()


def test_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two, other = (
        virtual_time.run(record_run(tmp_path / name, seed))
        for name, seed in (("one", 1), ("two", 1), ("other", 2))
    )

    assert one == two
    assert one != other


async def test_whole_vm_lifetime_is_simulated_quickly(tmp_path: Path) -> None:
    import time

    async with simulated_mac(tmp_path, work=60) as host:
        await host.vm("golden")
        began = time.process_time()
        for number in range(20):
            vm = f"vm-{number}"
            await host.tart("clone", "golden", vm)
            await host.tart("set", vm, "--random-mac", "--random-serial")
            await host.start(vm)
            await host.tart("ip", vm, "--wait", "60")
            await host.agent.runs.wait(vm)
            await host.tart("delete", vm)
            host.agent.runs.forget(vm)
        each = (time.process_time() - began) / 20

        assert now() > 20 * 60
        # A tenth of this on a fast machine; a real wait or a sync would exceed it.
        assert each < 0.1
        assert await asyncio.sleep(0, result=True)
