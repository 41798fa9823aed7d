"""The simulated registry of `bramley up`: its images, and how their guests behave."""

from __future__ import annotations

from typing import Any

FLEET = "demo"
# For single Pods, such as that in `examples/pod.yaml`.
JOB = "ghcr.io/example/macos-runner:latest"
# For the sample pool, which starts with the first one and can be rolled to the second one.
FIRST = "ghcr.io/example/macos-runner:1"
SECOND = "ghcr.io/example/macos-runner:2"
# Long enough to read a page of the tutorial; then the runner ends and is replaced, as after a job.
_WARM_SECONDS = 900
_WORK_SECONDS = 90


def _image(work: float, lines: list[str]) -> dict[str, Any]:
    # Realistic sizes, the download of a very small image; no space on the real disk is used.
    return {
        "size_bytes": 30_000_000_000,
        "compressed_bytes": 400_000_000,
        "guest": {"work": work, "lines": lines},
    }


SIMULATED_TART: dict[str, Any] = {
    "host": {"disk_bytes": 460_000_000_000, "lease_seconds": 600},
    "timings": {"address": 2.0, "agent": 2.0, "ready": 2.0, "halt": 1.0},
    "images": {
        JOB: _image(
            _WORK_SECONDS,
            [
                "runner {HOSTNAME} is up",
                "checking out the sources",
                "building",
                "testing",
                "all tests passed",
                "cleaning up",
            ],
        ),
        FIRST: _image(
            _WARM_SECONDS, ["runner {HOSTNAME} is up, image 1", "there is no job, stopping"]
        ),
        SECOND: _image(
            _WARM_SECONDS, ["runner {HOSTNAME} is up, image 2", "there is no job, stopping"]
        ),
    },
}
