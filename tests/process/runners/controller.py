"""The process of the pool controller: started, killed and started again, with its metrics."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families

from bramley.api.names import metrics
from tests.process.agent_life.servers import Server
from tests.process.runners.fleet import POOL
from tests.process.serving.processes import BRAMLEY, TIMEOUT_SECONDS, clean_environment, held_port

SCRAPED = (
    metrics.POOL_ROLLING_PODS.name,
    metrics.POOL_STALE_PODS.name,
    metrics.POOL_ROLL_CONCURRENCY_CAP.name,
)


class Tenant(Protocol):
    """A namespace with runners on a control plane."""

    @property
    def server(self) -> Server:
        """Return the control plane."""
        ...

    @property
    def namespace(self) -> str:
        """Return the namespace."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """The three metrics of a roll, scraped between two moments of the monotonic clock."""

    began: float
    ended: float
    rolling: int
    stale: int
    cap: int


@dataclass(slots=True)
class ControllerProcess:
    """One controller process after another."""

    fleet: Tenant
    log: Path
    port: int
    dispatch_url: str = ""
    # Whether it has to be the leader; one that was killed then holds its lease for another 15 s.
    is_elected: bool = False
    process: subprocess.Popen[bytes] | None = None
    samples: list[Sample] = field(default_factory=list)

    def start(self) -> None:
        """Start a controller."""
        values = {
            "--kubeconfig": str(self.fleet.server.kubeconfig),
            "--namespace": self.fleet.namespace,
            "--metrics-bind-address": f"127.0.0.1:{self.port}",
            "--health-probe-bind-address": "off",
            "--leader-election-namespace": self.fleet.namespace,
            "--dispatch-url": self.dispatch_url,
        }
        words = [word for flag, value in values.items() if value for word in (flag, value)]
        election = "--leader-elect" if self.is_elected else "--no-leader-elect"
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [str(BRAMLEY), "runners", *words, election],
                env=clean_environment(),
                stdout=out,
                stderr=out,
            )

    def restart(self) -> None:
        """Kill it and start another one, as its supervisor does."""
        self.expect_alive()
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(TIMEOUT_SECONDS)

    def expect_alive(self) -> None:
        """Check that it runs."""
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-4000:]

    def scrape(self) -> None:
        """Record the metrics of the pool; a controller that has just started has none."""
        began = time.monotonic()
        url = f"http://127.0.0.1:{self.port}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
        except OSError:
            return
        found = {
            sample.name: int(sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name in SCRAPED and sample.labels == {"pool": POOL}
        }
        if len(found) == len(SCRAPED):
            self.samples.append(Sample(began, time.monotonic(), *(found[name] for name in SCRAPED)))


@contextmanager
def running_controller(
    fleet: Tenant, log: Path, *, url: str = "", is_elected: bool = False
) -> Iterator[ControllerProcess]:
    """Run a controller until the block ends."""
    with held_port() as port:
        controller = ControllerProcess(fleet, log, port, url, is_elected)
        try:
            controller.start()
            yield controller
        finally:
            controller.kill()
