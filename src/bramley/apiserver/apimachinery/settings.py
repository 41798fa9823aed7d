"""What the embedded API allows at most; every bound is a number here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Settings:
    """The API's bounds and the version that it tells."""

    git_version: str = "v1.34.4+bramley"
    body_limit_bytes: int = 3 * 1024 * 1024
    object_limit_bytes: int = 3 * 512 * 1024
    header_limit_bytes: int = 64 * 1024
    body_deadline: timedelta = timedelta(seconds=60)
    bookmark_every: timedelta = timedelta(minutes=1)
    # A bookmark shortly before the end lets the next watch start where this one stopped.
    bookmark_before_end: timedelta = timedelta(seconds=2)
    # Each watch ends after a random time between these, so that clients do not all come back at once.
    watch_lasts: tuple[timedelta, timedelta] = (timedelta(minutes=30), timedelta(minutes=60))
    # A request that takes longer than this ends with a 504; a watch is none.
    request_deadline: timedelta = timedelta(seconds=60)
    requests_in_flight: int = 1_200
    requests_per_user: int = 400
    watches: int = 20_000
    watches_per_user: int = 2_000
    connections: int = 20_000
    # A connection whose request's head is not whole by then is closed, so that slow ones cannot fill the server.
    head_deadline: timedelta = timedelta(seconds=20)
    # A watcher that takes nothing for this long is not coming back.
    send_deadline: timedelta = timedelta(seconds=60)
    generate_name_tries: int = 8
    # Where a cluster's controllers run: Pods need a ServiceAccount and get its token, new Nodes are tainted until ready.
    cluster_admission: bool = False
    # For how long Pods that say nothing about it bear a Node that is not ready or not heard of.
    outage_toleration: timedelta = timedelta(minutes=5)
    service_range: str = "10.0.0.0/24"

    @property
    def major_minor(self) -> tuple[str, str]:
        """Return the version's first two numbers."""
        major, minor, *_ = self.git_version.removeprefix("v").split(".")
        return major, minor
