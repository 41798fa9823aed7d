"""Scaleway's SDK, with requests that have deadlines; the only module that imports it. Everything here blocks.

The SDK builds and decodes the messages. Its `_request` would send them without any timeout, follow redirects with the secret key,
and log responses, which contain passwords. So that method is replaced; the secret key is not in any object of the SDK.
Import this module inside functions: it loads the SDK.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import requests
from scaleway.applesilicon.v1alpha1 import ApplesiliconV1Alpha1API
from scaleway.iam.v1alpha1 import IamV1Alpha1API
from scaleway_core.api import API
from scaleway_core.client import Client

from bramley import __version__
from bramley.base import errors
from bramley.providers.scaleway_account import Account
from bramley.providers.scaleway_errors import refusal

_CONNECT_SECONDS = 5.0
_MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


# Sends a request until a time in monotonic seconds: `over_http`, or into an application of this process.
Send = Callable[[requests.PreparedRequest, float], Answer]


def over_http(prepared: requests.PreparedRequest, ends_at: float) -> Answer:
    """Send a request over a connection of its own; Unavailable if there is no whole response."""
    failed = ""
    try:
        with requests.Session() as session:
            return _exchanged(session, prepared, ends_at)
    except (requests.RequestException, OSError) as error:
        failed = type(error).__name__
    # Not chained: the library's errors hold the request, and so the secret key.
    raise errors.ProviderUnavailable(f"{_about(prepared)}: {failed}")


def _exchanged(
    session: requests.Session, prepared: requests.PreparedRequest, ends_at: float
) -> Answer:
    # The environment is not read: a proxy or .netrc would get or replace the credentials.
    session.trust_env = False
    left = _left(prepared, ends_at)
    timeout = (min(left, _CONNECT_SECONDS), left)
    if prepared.body:
        prepared.body = _TimelyBody(prepared, ends_at)
    body = bytearray()
    # An adapter of requests does not retry by itself.
    with session.send(prepared, timeout=timeout, allow_redirects=False, stream=True) as response:
        for chunk in response.iter_content(_CHUNK_BYTES):
            body += chunk
            _left(prepared, ends_at)
            if len(body) > _MAX_RESPONSE_BYTES:
                raise errors.ProviderUnavailable(
                    f"{_about(prepared)}: the response exceeds the size limit"
                )
    return Answer(response.status_code, response.headers, bytes(body))


class _TimelyBody(io.BytesIO):
    """A body that is not sent after the deadline, without which the server does not process the request.

    Looking the server up and connecting may take longer than the deadline, after which the caller may have sent another request.
    """

    def __init__(self, prepared: requests.PreparedRequest, ends_at: float) -> None:
        super().__init__(str(prepared.body).encode())
        self._check = partial(_left, prepared, ends_at)

    def read(self, size: int | None = -1) -> bytes:
        """Return a part of the body; TimedOut after the deadline."""
        self._check()
        return super().read(size)


def _left(prepared: requests.PreparedRequest, ends_at: float) -> float:
    left = ends_at - time.monotonic()
    if left <= 0:
        raise errors.TimedOut(f"{_about(prepared)}: the deadline has passed")
    return left


def _about(prepared: requests.PreparedRequest) -> str:
    return f"{prepared.method} {prepared.path_url.partition('?')[0]}"


class _Sender(API):
    """Sends the SDK's requests with the credentials of an account."""

    def __init__(self, account: Account, send: Send, ends_at: float) -> None:
        # No default project either: it would hide a call that lacks one.
        super().__init__(Client(api_url=account.api_url), bypass_validation=True)
        self._account = account
        self._send = send
        self._ends_at = ends_at

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> requests.Response:
        prepared = requests.Request(
            method,
            self._account.api_url + path,
            params={key: value for key, value in (params or {}).items() if value is not None},
            data=None if method in {"GET", "DELETE"} else json.dumps(body or {}),
            headers={**(headers or {}), **self._headers()},
        ).prepare()
        answer = self._send(prepared, self._ends_at)
        if not 200 <= answer.status < 300:
            secret = self._account.secret_key
            raise refusal(_about(prepared), answer.status, answer.headers, answer.body, secret)
        response = requests.Response()
        response.status_code = answer.status
        response._content = answer.body  # noqa: SLF001 - what `json()` decodes
        return response

    def _headers(self) -> dict[str, str]:
        return {
            "Accept": "application/json",
            # A small compressed response could become a huge one.
            "Accept-Encoding": "identity",
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": f"bramley/{__version__} {self.client.user_agent}",
            "X-Auth-Token": self._account.secret_key.reveal(),
        }


# mypy takes the SDK as untyped, because it has no marker.
class AppleSilicon(_Sender, ApplesiliconV1Alpha1API):  # type: ignore[misc]
    """The calls about hosts."""


class Iam(_Sender, IamV1Alpha1API):  # type: ignore[misc]
    """The calls about SSH keys."""


class Sdk:
    """The calls of one attempt, which share its deadline."""

    def __init__(self, account: Account, send: Send, ends_at: float) -> None:
        self.project_id = account.project_id
        self.hosts = AppleSilicon(account, send, ends_at)
        self.iam = Iam(account, send, ends_at)
