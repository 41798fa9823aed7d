"""What `bramley up` shows: what its simulated Macs are like, and the sample Pod that it starts on one of them.

The Macs know one image; guests made of it boot quickly, work for a while and end. A Pod may say otherwise by the variables
`BRAMLEY_SIM_WORK`, `BRAMLEY_SIM_CODE` and so on.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from bramley.api.core import Pod
from bramley.api.names import labels
from bramley.base import errors, log
from bramley.kube.client import Client

logger = log.get(__name__)

FLEET = "demo"
IMAGE = "ghcr.io/example/macos-runner:latest"
NAMESPACE = "default"
NAME = "sample"
_WORK_SECONDS = 90
# Long enough for somebody who reads a page before the next command.
_SAMPLE_WORKS_SECONDS = 900
_LOOK_EVERY = timedelta(milliseconds=200)
_MAKE_WAY_WITHIN = timedelta(minutes=1)

SCRIPT: dict[str, Any] = {
    # Sizes are what a real one has, the transfer is that of a very small one; nothing of it is taken from the real disk.
    "host": {"disk_bytes": 460_000_000_000, "lease_seconds": 600},
    "timings": {"address": 2.0, "agent": 2.0, "ready": 2.0, "halt": 1.0},
    "images": {
        IMAGE: {
            "size_bytes": 30_000_000_000,
            "compressed_bytes": 400_000_000,
            "guest": {
                "work": _WORK_SECONDS,
                "lines": [
                    "runner {HOSTNAME} is up",
                    "checking out the sources",
                    "building",
                    "testing",
                    "all tests passed",
                    "cleaning up",
                ],
            },
        }
    },
}

SAMPLE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": NAME, "labels": {"app": NAME}},
    "spec": {
        "restartPolicy": "Never",
        "nodeSelector": {labels.OS: labels.DARWIN},
        "tolerations": [{"key": labels.MACOS_TAINT, "operator": "Exists"}],
        "terminationGracePeriodSeconds": 5,
        "containers": [
            {
                "name": "job",
                "image": IMAGE,
                "env": [{"name": "BRAMLEY_SIM_WORK", "value": str(_SAMPLE_WORKS_SECONDS)}],
                "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
            }
        ],
    },
}


async def start_sample(kube: Client, since: datetime) -> None:
    """Ask for the sample Pod; that of an earlier start, whose machine is gone, makes way for it."""
    try:
        async with asyncio.timeout(_MAKE_WAY_WITHIN.total_seconds()):
            while await _is_old_one_there(kube, since):  # noqa: ASYNC110 - the deadline ends it
                await asyncio.sleep(_LOOK_EVERY.total_seconds())
            await kube.create_wire(Pod.resource, SAMPLE, namespace=NAMESPACE)
    except errors.AlreadyExists:
        logger.info("Sample Pod is there already", pod=NAME)
    except (errors.BramleyError, TimeoutError) as error:
        logger.warning("Sample Pod not started", pod=NAME, error=str(error))


async def _is_old_one_there(kube: Client, since: datetime) -> bool:
    """Tell whether a sample Pod of an earlier start is there; have it deleted if so."""
    try:
        old = await kube.get(Pod, NAME, namespace=NAMESPACE)
        created = old.metadata.creation_timestamp
        if created is None or created >= since:
            return False
        if old.metadata.deletion_timestamp is None:
            await kube.delete(Pod, NAME, namespace=NAMESPACE, uid=old.uid)
    except errors.NotFound:
        return False
    return True
