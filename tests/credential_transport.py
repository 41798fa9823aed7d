"""A transport in process that sends credentials as the HTTP transport does: after a refusal it asks for another one, once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bramley.base.secret import Secret
from bramley.kube.credentials import Credential, Credentials
from bramley.kube.transport import Request, Response, Stream, Transport

_UNAUTHORIZED = 401


@dataclass(frozen=True, slots=True)
class CredentialTransport:
    """A transport with the credentials of one client; `connect` opens one with a token."""

    connect: Callable[[Secret], Transport]
    credentials: Credentials

    async def send(self, request: Request) -> Response:
        shown = await self.credentials.current()
        response = await self._with(shown).send(request)
        if response.status == _UNAUTHORIZED and await self.credentials.refused(shown):
            response = await self._with(await self.credentials.current()).send(request)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        shown = await self.credentials.current()
        async with self._with(shown).stream(request) as stream:
            if stream.status != _UNAUTHORIZED or not await self.credentials.refused(shown):
                yield stream
                return
        async with self._with(await self.credentials.current()).stream(request) as stream:
            yield stream

    async def close(self) -> None:
        return

    def _with(self, credential: Credential) -> Transport:
        header = credential.authorization.reveal() if credential.authorization else ""
        return self.connect(Secret(header.removeprefix("Bearer ")))
