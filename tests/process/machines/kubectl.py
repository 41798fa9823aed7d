"""kubectl as an administrator of a control plane."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.programs import run_program


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The program, the kubeconfig, and a discovery cache of its own: another server may have used the port before."""

    program: Path
    kubeconfig: Path
    cache: Path

    async def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run it to its end, and return what it prints."""
        own = (f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.cache}")
        command = [str(self.program), *own, *arguments]
        done = await asyncio.to_thread(run_program, command, input=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    async def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        await self("apply", "-f", "-", stdin=json.dumps(listed))
