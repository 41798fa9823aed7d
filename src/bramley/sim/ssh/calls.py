"""The talk with one shim: what was called, by whom and with which files; asked for input, and told how it ended."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from bramley.sim.macos.call import Said
from bramley.sim.ssh.shim import END, INPUT, PROMPT

LONGEST = 16 * 1024 * 1024
_STANDARD_FILES = 3
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as it came from a shim."""

    argv: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    on_terminal: bool
    largest_file: int | None
    files: tuple[int, int, int]

    def close(self) -> None:
        """Let go of its files."""
        for file in self.files:
            os.close(file)


@dataclass(frozen=True, slots=True)
class Talk:
    """One shim's connection."""

    line: socket.socket

    def uid(self) -> int:
        """Return the number of the user at the other end."""
        found = self.line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        uid: int = _CREDENTIALS.unpack(found)[1]
        return uid

    async def hear(self) -> Asked:
        """Return what was called; ConnectionError if the shim does not say it."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self.line, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self.line)
        header, files, _, _ = socket.recv_fds(self.line, 4, _STANDARD_FILES)
        if len(header) < 4 or len(files) != _STANDARD_FILES:
            for file in files:
                os.close(file)
            raise ConnectionError("no call")
        words = (await self._sized(header)).split(b"\0")[:-1]
        return _asked([os.fsdecode(word) for word in words], (files[0], files[1], files[2]))

    async def input(self) -> bytes:
        """Return all of its standard input."""
        await self._say(INPUT)
        return await self._given()

    async def typed(self, prompt: str, *, before: str = "") -> bytes:
        """Return one line with its end, typed at a prompt or sent on a pipe."""
        await self._say(PROMPT, "", prompt, before)
        return await self._given()

    async def tell(self, said: Said) -> None:
        """Tell how the call ended and what it prints."""
        await self._say(END, str(said.code), said.out, said.err)

    async def until_gone(self) -> None:
        """Wait until nobody is at the other end."""
        await asyncio.get_running_loop().sock_recv(self.line, 1)

    async def _say(self, kind: bytes, *texts: str) -> None:
        parts = [text.encode("utf-8", "surrogateescape") for text in (*texts, "", "", "")[:3]]
        content = kind + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        await asyncio.get_running_loop().sock_sendall(self.line, content)

    async def _given(self) -> bytes:
        return await self._sized(await self._exactly(4))

    async def _sized(self, header: bytes) -> bytes:
        size = int.from_bytes(header, "big")
        if size > LONGEST:
            raise ConnectionError("too long a call")
        return await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        loop, parts = asyncio.get_running_loop(), bytearray()
        while len(parts) < size:
            part = await loop.sock_recv(self.line, size - len(parts))
            if not part:
                raise ConnectionError("the program was killed")
            parts += part
        return bytes(parts)


def _asked(words: list[str], files: tuple[int, int, int]) -> Asked:
    on_terminal, largest_file, folder, count, *rest = words
    limit = int(largest_file)
    return Asked(
        argv=tuple(rest[: int(count)]),
        folder=folder,
        environment=dict(word.split("=", 1) for word in rest[int(count) :]),
        on_terminal=on_terminal == "1",
        largest_file=None if limit == resource.RLIM_INFINITY else limit,
        files=files,
    )
