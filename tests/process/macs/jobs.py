"""Jobs at the simulated GitHub of `bramley up`, and their states in its dispatch server."""

from __future__ import annotations

import json
from urllib.error import URLError
from urllib.request import Request, urlopen

from bramley.api.names import runners
from tests.process.serving.processes import TIMEOUT_SECONDS, Bramley, until


def dispatch_url(server: Bramley, key: str) -> str:
    """Return an address that dispatch publishes, once it does."""
    path = "/api/v1/namespaces/default/configmaps/bramley-dispatch"
    found = until(lambda: server.request("GET", path)[1].get("data"))
    return str(found[key])


def queue_job(server: Bramley, *, seconds: float) -> int:
    """Queue a job at the simulated GitHub and return its id."""
    labels = [runners.SAMPLE_DISPATCH_LABEL]
    body = {"repository": "acme/app", "labels": labels, "seconds": seconds}
    url = f"{dispatch_url(server, 'github-url')}/sim/jobs"
    with urlopen(url, json.dumps(body).encode(), TIMEOUT_SECONDS) as answer:  # noqa: S310 - ours
        return int(json.load(answer)["id"])


def job_state(server: Bramley, number: int) -> str:
    url = f"{dispatch_url(server, 'url')}/api/v1/jobs/{number}"
    request = Request(url, headers={"Authorization": f"Bearer {server.token}"})  # noqa: S310 - ours
    try:
        with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - ours
            return str(json.load(answer)["state"])
    except URLError:
        # Its webhook has not arrived, or dispatch is about to start.
        return ""
