"""The token chain at the real GitHub: `pytest -m live_github` with APP_ID, INSTALLATION_ID, PRIVATE_KEY and GH_ORG.

Nothing is changed there; a registration token is created and not used. GITHUB_API_URL selects a GitHub Enterprise server.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from bramley.base.clock import SystemClock
from bramley.github import app_keys
from bramley.github.app import GitHubApp
from bramley.github.app_keys import AppCredentials
from bramley.github.client import GitHubClient
from bramley.github.http import DEFAULT_API_URL, HttpTransport
from bramley.github.owners import Organisation

VARIABLES = ("APP_ID", "INSTALLATION_ID", "PRIVATE_KEY", "GH_ORG")


@pytest.mark.live_github
async def test_token_chain_at_the_real_github() -> None:
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        pytest.fail(f"set {', '.join(missing)} to run this test", pytrace=False)
    app_id, installation_id, pem, organisation = (os.environ[name] for name in VARIABLES)
    owner = Organisation(organisation)
    credentials = AppCredentials(app_id, app_keys.load(pem.encode(), "PRIVATE_KEY"))
    async with HttpTransport(os.environ.get("GITHUB_API_URL") or DEFAULT_API_URL) as transport:
        client = GitHubClient(transport, clock=SystemClock(), registry=CollectorRegistry())
        app = GitHubApp(credentials, client, clock=SystemClock())
        installation = app.installation(int(installation_id))

        assert (await app.installation_of(owner)).id == int(installation_id)
        token = await installation.registration_token(owner)
        assert token.expires_at > datetime.now(UTC) + timedelta(minutes=30)
        before = await installation.runners(owner)
        assert {each.id for each in await installation.runners(owner)} == {
            each.id for each in before
        }
        assert client.rate_limits.budget(installation.scope) is not None
