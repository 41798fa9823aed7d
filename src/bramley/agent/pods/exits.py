"""Waits for the ends of VMs and rings for their Pods, so that an exit is told at once and not at the next look."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from bramley.agent.runs import Runs
from bramley.base import errors
from bramley.runtime.bell import Bell
from bramley.runtime.keys import Key


class Exits:
    """Follows the runs of VMs, whoever began them."""

    def __init__(self, runs: Runs, bell: Bell) -> None:
        self._runs = runs
        self._bell = bell
        self._followed: set[str] = set()
        self._new: asyncio.Queue[tuple[str, Key]] = asyncio.Queue()

    def follow(self, vm: str, key: Key) -> None:
        """Ring for this Pod when the VM's run has ended; one that is followed already is followed once."""
        if vm not in self._followed and self._runs.is_begun(vm):
            self._followed.add(vm)
            self._new.put_nowait((vm, key))

    async def run(self) -> NoReturn:
        """Follow VMs until cancelled; the VMs go on."""
        async with asyncio.TaskGroup() as group:
            while True:
                vm, key = await self._new.get()
                group.create_task(self._wait(vm, key), name=vm)

    async def _wait(self, vm: str, key: Key) -> None:
        try:
            await self._runs.wait(vm)
        except (errors.BramleyError, OSError):
            # Forgotten meanwhile, or the host cannot tell: the next look finds out.
            pass
        finally:
            self._followed.discard(vm)
        self._bell.ring(key)
