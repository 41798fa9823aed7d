"""Scaleway's SDK, with requests that have deadlines; the only module that imports it. Everything here blocks.

The SDK builds and decodes the messages. Its `_request` would send them without any timeout, follow redirects with the secret key,
and log responses, which contain passwords. So that method is replaced; the secret key is not in any object of the SDK.
Import this module inside functions: it loads the SDK.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import requests
from requests.adapters import HTTPAdapter
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


class _Sender(API):
    """Sends the SDK's requests until `ends_at`, in monotonic seconds."""

    def __init__(self, account: Account, ends_at: float) -> None:
        # No default project either: it would hide a call that lacks one.
        super().__init__(Client(api_url=account.api_url), bypass_validation=True)
        self._account = account
        self._ends_at = ends_at

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        body: Any = None,
    ) -> requests.Response:
        about = f"{method} {path}"
        query = {key: value for key, value in (params or {}).items() if value is not None}
        prepared = requests.Request(
            method,
            self._account.api_url + path,
            params=query,
            data=None if method in {"GET", "DELETE"} else json.dumps(body or {}),
            headers={**(headers or {}), **self._headers()},
        ).prepare()
        failed = ""
        try:
            with requests.Session() as session:
                return self._exchange(session, prepared, about)
        except (requests.RequestException, OSError) as error:
            failed = type(error).__name__
        # Not chained: the library's errors hold the request, and so the secret key.
        raise errors.ProviderUnavailable(f"{about}: {failed}")

    def _headers(self) -> dict[str, str]:
        return {
            "Accept": "application/json",
            # A small compressed response could become a huge one.
            "Accept-Encoding": "identity",
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": f"bramley/{__version__} {self.client.user_agent}",
            "X-Auth-Token": self._account.secret_key.reveal(),
        }

    def _exchange(
        self, session: requests.Session, prepared: requests.PreparedRequest, about: str
    ) -> requests.Response:
        # The environment is not read: a proxy or .netrc would get or replace the credentials.
        session.trust_env = False
        session.mount("https://", HTTPAdapter(max_retries=0))
        session.mount("http://", HTTPAdapter(max_retries=0))
        left = self._left(about)
        timeout = (min(left, _CONNECT_SECONDS), left)
        with session.send(
            prepared, timeout=timeout, allow_redirects=False, stream=True
        ) as response:
            response._content = self._body(response, about)  # noqa: SLF001 - what `json()` decodes
        if not 200 <= response.status_code < 300:
            raise refusal(
                about,
                response.status_code,
                response.headers,
                response.content,
                self._account.secret_key,
            )
        return response

    def _body(self, response: requests.Response, about: str) -> bytes:
        body = bytearray()
        for chunk in response.iter_content(_CHUNK_BYTES):
            body += chunk
            self._left(about)
            if len(body) > _MAX_RESPONSE_BYTES:
                raise errors.ProviderUnavailable(f"{about}: the response exceeds the size limit")
        return bytes(body)

    def _left(self, about: str) -> float:
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise errors.TimedOut(f"{about}: the deadline has passed")
        return left


# mypy takes the SDK as untyped, because it has no marker.
class AppleSilicon(_Sender, ApplesiliconV1Alpha1API):  # type: ignore[misc]
    """The calls about hosts."""


class Iam(_Sender, IamV1Alpha1API):  # type: ignore[misc]
    """The calls about SSH keys."""


class Sdk:
    """The calls of one attempt, which share its deadline."""

    def __init__(self, account: Account, ends_at: float) -> None:
        self.project_id = account.project_id
        self.hosts = AppleSilicon(account, ends_at)
        self.iam = Iam(account, ends_at)
