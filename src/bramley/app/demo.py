"""What `bramley up` shows: what its simulated Macs are like, and the sample Pod that it starts on one of them.

The Macs know one image; guests made of it boot quickly, work for a while and end. A Pod may say otherwise by the variables
`BRAMLEY_SIM_WORK`, `BRAMLEY_SIM_CODE` and so on.
"""

from __future__ import annotations

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

SCRIPT: dict[str, Any] = {
    # Sizes are what a real one has, the transfer is that of a very small one; nothing of it is taken from the real disk.
    "host": {"disk_bytes": 460_000_000_000, "lease_seconds": 600},
    "timings": {"address": 2.0, "agent": 2.0, "ready": 3.0, "halt": 1.0},
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
                "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
            }
        ],
    },
}


async def start_sample(kube: Client) -> None:
    """Ask for the sample Pod; one that an earlier start asked for stays as it is."""
    try:
        await kube.create_wire(Pod.resource, SAMPLE, namespace=NAMESPACE)
    except errors.AlreadyExists:
        logger.info("Sample Pod is there already", pod=NAME)
    except errors.BramleyError as error:
        logger.warning("Sample Pod refused", pod=NAME, error=str(error))
