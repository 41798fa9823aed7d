"""A GitHub App: the calls that it makes as itself, and its installations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from bramley.base import errors
from bramley.base.clock import Clock
from bramley.github.app_keys import AppCredentials
from bramley.github.client import Call, Credential, GitHubClient
from bramley.github.installation import Installation
from bramley.github.installation_tokens import InstallationTokens
from bramley.github.owners import RunnerOwner
from bramley.github.responses import AccessToken, HookDelivery, InstallationSummary, decoded
from bramley.kube.transport import Response

SCOPE = "app"


class GitHubApp:
    """Calls GitHub as an App; `installation` returns what acts in one organisation or account.

    Errors of all calls: Unavailable, RateLimited, NotFound, or Refused, such as Unauthorized for a revoked key.
    """

    def __init__(self, credentials: AppCredentials, client: GitHubClient, *, clock: Clock) -> None:
        self._credentials = credentials
        self._client = client
        self._clock = clock
        self._tokens = InstallationTokens(self._create_token, clock)

    def installation(self, installation_id: int) -> Installation:
        """Return the installation with this id; all of them share the tokens."""
        return Installation(installation_id, self._client, self._tokens)

    async def installation_of(self, owner: RunnerOwner) -> InstallationSummary:
        """Return the installation of the App in an organisation, or the one that has a repository; NotFound if there is none."""
        call = Call("GET", f"{owner.path}/installation", repeatable=True)
        response = await self._send(call)
        return decoded(response.body, InstallationSummary, str(call))

    async def hook_deliveries(self, *, since: datetime) -> AsyncIterator[HookDelivery]:
        """Yield the deliveries of the App's webhook since a time, the newest first."""
        call = Call("GET", "/app/hook/deliveries", {"per_page": "100"}, repeatable=True)
        async for page in self._pages(call):
            for delivery in page:
                if delivery.delivered_at < since:
                    return
                yield delivery

    async def redeliver(self, delivery_id: int) -> None:
        """Request another delivery with the same GUID; a failure after the request was sent may leave one requested."""
        call = Call("POST", f"/app/hook/deliveries/{delivery_id}/attempts")
        await self._send(call)

    async def _pages(self, call: Call) -> AsyncIterator[list[HookDelivery]]:
        async for response in self._client.pages(call, self._send):
            yield decoded(response.body, list[HookDelivery], str(call))

    async def _create_token(self, installation_id: int) -> AccessToken:
        path = f"/app/installations/{installation_id}/access_tokens"
        # A second token is harmless, so this may be repeated.
        call = Call("POST", path, repeatable=True)
        try:
            response = await self._send(call)
        except errors.NotFound as error:
            # Not NotFound: the caller would take it for the absence of the runner or job that it reads.
            raise errors.Forbidden(f"the GitHub App is not installed any more: {error}") from None
        return decoded(response.body, AccessToken, str(call))

    async def _send(self, call: Call) -> Response:
        credential = Credential(SCOPE, self._credentials.token(self._clock.now()))
        try:
            return await self._client.send(call, credential)
        except errors.Unauthorized as error:
            app_id, key = self._credentials.app_id, self._credentials.key.fingerprint
            raise errors.Unauthorized(f"{error}; sent by App {app_id} with key {key}") from None
