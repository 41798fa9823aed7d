"""The agent's archives for `bramley up --bootstrap`, made by a process of their own, so that who stops meanwhile need not wait for them.

A thread could not be ended. The process takes its end for an error, by which its scratch folders go.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from bramley.app.agent_bundle import pair
from bramley.app.agent_bundle.archive import Archive
from bramley.app.agent_bundle.pair import Pair
from bramley.base.errors import BadConfiguration, BramleyError, TimedOut
from bramley.host import agent_archive
from bramley.host.agent_archive import Kind

WITHIN = timedelta(minutes=10)
# It clears its scratch folders first, on a machine that may be busy.
_ENDED_WITHIN = timedelta(seconds=60)


def are_kept(folder: Path) -> bool:
    """Tell whether a folder holds both archives from an earlier time, and not just what was begun."""
    return all(any(folder.glob(f"{kind}-*/*.tar.gz")) for kind in Kind)


async def made(folder: Path) -> Pair:
    """Return both archives from a folder, made now if they are not in it; cancelled, it leaves nothing half made."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__, str(folder)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # Ctrl-C is ours to hear, and then to pass on.
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(WITHIN.total_seconds()):
            out, told = await process.communicate()
    except TimeoutError as error:
        raise TimedOut(f"not done within {WITHIN.total_seconds() / 60:.0f} minutes") from error
    finally:
        await _end(process)
    if process.returncode:
        raise BadConfiguration(told.decode(errors="replace").strip()[-500:])
    return await asyncio.to_thread(_read, out.decode().splitlines())


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_ENDED_WITHIN.total_seconds()):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()


def _read(paths: list[str]) -> Pair:
    interpreter, code = (Path(path) for path in paths)
    return Pair(
        Archive.of(interpreter, agent_archive.read(interpreter, Kind.INTERPRETER)),
        Archive.of(code, agent_archive.read(code, Kind.CODE)),
    )


def main(folder: str) -> int:
    """Make both archives in this process, and print where they are."""
    signal.signal(signal.SIGTERM, _exit)
    try:
        found = pair.cached(Path(folder))
    except (BramleyError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - the process that asked for it tells it
        return 1
    print(found.interpreter.path, found.code.path, sep="\n")  # noqa: T201 - that is the answer
    return 0


def _exit(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
