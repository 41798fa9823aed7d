"""The resource usage of this Node and its VMs, measured every few seconds; rates are computed from two measurements.

The Node's usage is the sum of its VMs and the agent: other processes on a Mac of the fleet use little, and the system's own
counters differ between macOS and Linux.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from bramley.agent.host import Host, Space, Usage
from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.serving.sources import NodeUsage, PodUsage, UsageSample
from bramley.api.core import Pod
from bramley.api.names import agent
from bramley.base.clock import Clock

SAMPLE_EVERY = agent.USAGE_WINDOW
# The second measurement comes early, because the first rates need it.
FIRST_AFTER = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Sample:
    pid: int
    used: UsageSample


@dataclass(slots=True)
class StatsProvider:
    """Measures resource usage; `run` must run concurrently.

    `process` finds the process that runs a VM, `pods` a Pod of this Node, `disk` is the folder of the VMs' disks, `own` returns
    the usage of the agent itself.
    """

    node: str
    host: Host
    records: Callable[[], Mapping[str, VmRecord]]
    process: Callable[[str], int | None]
    pods: Callable[[str, str], Pod | None]
    clock: Clock
    disk: Path | None = None
    own: Callable[[], Usage] = field(default_factory=lambda: own_usage)
    _samples: dict[str, _Sample] = field(default_factory=dict)
    _own: _Sample | None = None
    _ended_cpu: float = 0.0
    _started: datetime = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock.now()

    async def run(self) -> None:
        """Measure until cancelled."""
        self.sample()
        await asyncio.sleep(FIRST_AFTER.total_seconds())
        while True:
            self.sample()
            await asyncio.sleep(SAMPLE_EVERY.total_seconds())

    def sample(self) -> None:
        """Measure once."""
        # A VM without a new sample is dropped: its process has ended or is not readable.
        before, self._samples = self._samples, {}
        for vm, record in self.records().items():
            if record.state is VmState.STARTED and (pid := self.process(vm)) is not None:
                sample = self._measure(pid, before.get(vm))
                if sample is not None:
                    self._samples[vm] = sample
        for vm, last in before.items():
            now = self._samples.get(vm)
            if now is None or now.pid != last.pid:
                # The Node's counter must not decrease when a VM ends.
                self._ended_cpu += last.used.cpu_seconds
        previous = self._own.used if self._own else None
        self._own = _Sample(0, _usage_sample(self.own(), previous, self.clock.now()))

    def usage(self) -> NodeUsage:
        """Return the last measurement."""
        records = self.records()
        vms = {vm: each.used for vm, each in self._samples.items() if vm in records}
        pods = [self._pod(records[vm], used) for vm, used in vms.items()]
        return NodeUsage(
            node=self.node,
            started_at=self._started,
            used=self._total(),
            pods=sorted(pods, key=lambda each: (each.namespace, each.pod)),
            disk=self._space(),
        )

    def _pod(self, record: VmRecord, used: UsageSample) -> PodUsage:
        pod = self.pods(record.namespace, record.pod)
        names = [each.name for each in pod.spec.containers] if pod else []
        return PodUsage(
            namespace=record.namespace,
            pod=record.pod,
            uid=record.uid,
            container=names[0] if names else record.pod,
            started_at=record.started_at,
            used=used,
        )

    def _total(self) -> UsageSample:
        agent_sample = [self._own] if self._own else []
        samples = [sample.used for sample in (*self._samples.values(), *agent_sample)]
        rates = [used.cores for used in samples if used.cores is not None]
        return UsageSample(
            at=max((used.at for used in samples), default=self.clock.now()),
            cpu_seconds=self._ended_cpu + sum(used.cpu_seconds for used in samples),
            cores=sum(rates) if rates else None,
            memory_bytes=sum(used.memory_bytes for used in samples),
        )

    def _measure(self, pid: int, before: _Sample | None) -> _Sample | None:
        try:
            usage = self.host.usage(pid)
        except OSError:
            return None
        if usage is None:
            return None
        at = self.clock.now()
        last = before.used if before is not None and before.pid == pid else None
        return _Sample(pid, _usage_sample(usage, last, at))

    def _space(self) -> Space | None:
        if self.disk is None:
            return None
        try:
            return self.host.space(self.disk)
        except OSError:
            return None


def own_usage() -> Usage:
    """Return the usage of this process without its children, which are counted with the VMs."""
    unit = 1 if sys.platform == "darwin" else 1024
    max_resident_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return Usage(timedelta(seconds=time.process_time()), max_resident_bytes)


def _usage_sample(usage: Usage, last: UsageSample | None, at: datetime) -> UsageSample:
    cpu, cores = usage.cpu.total_seconds(), None
    if last is not None and at > last.at:
        # The time of a child that has ended is lost; the counter must not decrease by it.
        cpu = max(cpu, last.cpu_seconds)
        cores = (cpu - last.cpu_seconds) / (at - last.at).total_seconds()
    elif last is not None:
        cores = last.cores
    return UsageSample(at, cpu, cores, usage.resident_bytes)
