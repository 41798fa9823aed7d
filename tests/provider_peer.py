"""The provider of a simulated Scaleway without Macs, called in place: no socket and no thread, so also under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl

from bramley.base.secret import Secret
from bramley.providers.scaleway_account import Account
from bramley.providers.scaleway_calls import Transport
from bramley.sim.scaleway.application import ApiRequest, respond
from bramley.sim.scaleway.macs import Installation
from bramley.sim.scaleway.scaleway import SECRET_KEY, SimulatedScaleway

if TYPE_CHECKING:
    import requests

    from bramley.providers.scaleway_sdk import Answer

T = TypeVar("T")

ACCESS_KEY = "SCW0123456789ABCDEFG"
KEY = SECRET_KEY


class NoMacs:
    """Servers whose Macs do nothing."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}

    def address(self, server_id: str) -> str:
        number = len(self._addresses) + 1
        return self._addresses.setdefault(server_id, f"10.30.{number // 250}.{number % 250}")

    async def install(self, server_id: str, installation: Installation) -> None:
        """Install nothing."""

    async def shut_down(self, server_id: str) -> None:
        """Shut nothing down."""

    async def reboot(self, server_id: str) -> None:
        """Restart nothing."""


class InPlace:
    """Runs functions on the loop: they must not block."""

    async def run(
        self, scope: str, function: Callable[[], T], *, deadline: timedelta, about: str
    ) -> T:
        del scope, deadline, about
        # Other tasks run between two calls, as they do between those of threads.
        await asyncio.sleep(0)
        return function()


def account(scaleway: SimulatedScaleway, url: str = "https://api.scaleway.com") -> Account:
    settings = scaleway.settings
    return Account(ACCESS_KEY, Secret(settings.secret_key), settings.project_id, url)


def in_place(scaleway: SimulatedScaleway) -> Transport:
    """Return the transport of a provider that calls this simulated Scaleway."""
    return Transport(InPlace(), lambda prepared, _ends_at: sent(scaleway, prepared))


def sent(scaleway: SimulatedScaleway, prepared: requests.PreparedRequest) -> Answer:
    """Send a request of the SDK to the simulated Scaleway."""
    from bramley.providers.scaleway_sdk import Answer

    path, _, query = prepared.path_url.partition("?")
    key, body = str(prepared.headers["X-Auth-Token"]), str(prepared.body or "").encode()
    request = ApiRequest(str(prepared.method), path, dict(parse_qsl(query)), key, body)
    response = respond(scaleway, request, scaleway.faults.take(request.method, request.path))
    return Answer(response.status, response.headers, response.body)
