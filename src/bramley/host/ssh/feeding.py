"""What is said to a command while it runs: a password if sudo asks, then its input; the blocks of a file; a line at a prompt."""

from __future__ import annotations

import asyncio

from bramley.base.secret import Secret
from bramley.host.artifacts import Reading
from bramley.host.commands import Run
from bramley.host.deadlines import Renew
from bramley.host.rendering.script import Script, content_of
from bramley.host.ssh.talking import Talk

_END_OF_INPUT = b"\x04"


async def give(talk: Talk, script: Script, password: Secret | None) -> None:
    """Give sudo its password if it asks, and then the command what it takes."""
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(_answer_sudo(talk, script, password))
        await talk.output.until(script.token)
        answering.cancel()
    await talk.send(script.given.reveal_bytes())


async def _answer_sudo(talk: Talk, script: Script, password: Secret | None) -> None:
    if password is None:
        return
    await talk.errors.until(script.asks)
    await talk.send(password.reveal().encode() + b"\n")
    await talk.errors.until(script.asks, times=2)
    # Asked again, so it was wrong. Two tries more, and the Mac might lock the account.
    talk.is_password_wrong = True
    talk.send_end()


async def stream(talk: Talk, script: Script, reading: Reading, *, renew: Renew) -> None:
    """Send a file, block by block, and tell of each one that was taken."""
    await talk.output.until(script.token)
    async for block in reading.blocks():
        await talk.send(block)
        renew()
    talk.send_end()


async def type_in(talk: Talk, script: Script, command: Run) -> None:
    """Type the input as a line once the program asks for it, and nothing if it asks again."""
    await talk.output.until(script.token)
    await talk.output.until(command.prompt)
    await talk.send(content_of(command.stdin) + b"\n")
    await talk.output.until(command.prompt, times=2)
    await talk.send(_END_OF_INPUT)
