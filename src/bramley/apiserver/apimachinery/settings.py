"""The limits of the embedded API; each is a number here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Settings:
    """The API's limits, and the version that it reports."""

    git_version: str = "v1.34.4+bramley"
    body_limit_bytes: int = 3 * 1024 * 1024
    object_limit_bytes: int = 3 * 512 * 1024
    header_limit_bytes: int = 64 * 1024
    body_deadline: timedelta = timedelta(seconds=60)
    bookmark_every: timedelta = timedelta(minutes=1)
    # A bookmark shortly before the end lets the next watch start where this one stopped.
    bookmark_before_end: timedelta = timedelta(seconds=2)
    # Each watch ends after a random time between these, so that clients do not all reconnect at once.
    watch_duration: tuple[timedelta, timedelta] = (timedelta(minutes=30), timedelta(minutes=60))
    # A longer request ends with a 504; watches are not limited.
    request_deadline: timedelta = timedelta(seconds=60)
    requests_in_flight: int = 1_200
    requests_per_user: int = 400
    watches: int = 20_000
    watches_per_user: int = 2_000
    connections: int = 20_000
    # A connection whose request head is incomplete by then is closed, so that slow clients cannot exhaust the server.
    head_deadline: timedelta = timedelta(seconds=20)
    # A watch whose client reads nothing for this long is closed.
    send_deadline: timedelta = timedelta(seconds=60)
    generate_name_tries: int = 8
    # With controllers in the cluster: Pods need a ServiceAccount and get its token, new Nodes are tainted until ready.
    cluster_admission: bool = False
    # How long Pods without a toleration of their own tolerate a Node that is not ready or unreachable.
    outage_toleration: timedelta = timedelta(minutes=5)
    service_range: str = "10.0.0.0/24"

    @property
    def major_minor(self) -> tuple[str, str]:
        """Return the version's first two numbers."""
        major, minor, *_ = self.git_version.removeprefix("v").split(".")
        return major, minor
