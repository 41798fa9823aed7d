"""A small kopf operator: creates a ConfigMap for each Apple, and records it in the Apple's status.

`python press_operator.py` is run by the interpreter that has kopf, with KUBECONFIG set; it runs until it is stopped.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import kopf
from kubernetes import client, config

NAMESPACE = "orchard"


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Keep kopf's own notes in annotations, and try again soon when the server is away."""
    settings.posting.level = logging.WARNING
    settings.networking.error_backoffs = [0.1, 0.2, 0.5, 1, 2, 4]
    settings.watching.server_timeout = 20


@kopf.on.create("example.com", "v1", "apples")
async def press(name: str, body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
    """Create the ConfigMap, once however often it is tried, and set the status."""
    juice = {
        "metadata": {"name": f"juice-{name}", "labels": {"made-by": "press"}},
        "data": {"sort": body["spec"]["sort"]},
    }
    kopf.adopt(juice, owner=body)
    try:
        await asyncio.to_thread(make, juice)
    except client.ApiException as error:
        if error.status != 409:
            raise kopf.TemporaryError(str(error.status), delay=0.5) from error
    except Exception as error:
        raise kopf.TemporaryError(type(error).__name__, delay=0.5) from error
    patch.status["pressed"] = True


def make(juice: dict[str, Any]) -> None:
    """Create the ConfigMap by the official client."""
    client.CoreV1Api().create_namespaced_config_map(NAMESPACE, juice)


if __name__ == "__main__":
    config.load_kube_config()
    asyncio.run(kopf.operator(standalone=True, namespaces=[NAMESPACE]))
