"""A program that opens stores on a file system that became read-only, and prints the errors.

Run it as `python -m tests.process.durability.read_only FOLDER`, alone in a mount namespace.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from bramley.apiserver.store.records import Draft, Key
from bramley.apiserver.store.store import Store
from bramley.base.errors import BadConfiguration


async def fill(folder: Path) -> None:
    async with Store.open(folder) as store:
        await store.write(Key("pods", "default", "a"), lambda _, _rv: Draft(b"{}"))


def main(mounted: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", mounted], check=True)
    asyncio.run(fill(mounted / "old"))
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    for name in ("old", "new"):
        try:
            Store.open(mounted / name)
        except BadConfiguration as refusal:
            sys.stdout.write(f"{str(refusal).replace(str(mounted), 'MOUNTED')}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
