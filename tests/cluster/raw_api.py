"""Plain JSON requests to the real API server as its admin, for tests that check the wire format."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from tools.kube import probe
from tools.kube.control_plane import RealCluster


@dataclass(frozen=True, slots=True)
class RawApi:
    """Sends and receives JSON; a refusal is urllib's HTTPError."""

    cluster: RealCluster

    def send(self, method: str, path: str, body: object = None, type: str = "json") -> Any:
        """Send one request and return the decoded answer."""
        request = urllib.request.Request(  # noqa: S310  the server is ours
            f"{self.cluster.server}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": f"application/{type}"},
        )
        context = probe.admin_context(self.cluster.pki)
        with urllib.request.urlopen(request, context=context, timeout=180) as answer:  # noqa: S310
            return json.loads(answer.read())
