from __future__ import annotations

import json
import os
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from bench.__main__ import BENCHES
from bench.pools import measurements, rolled_pods, stage
from bench.pools.measurements import Rest
from bench.pools.rolled_pods import Counting
from bench.pools.run import EMBEDDED, KUBERNETES, WRITES_AT_REST, WRITES_PER_POD, Results
from bramley.kube.transport import Request, Response, Stream

REST = Rest(
    pools=200,
    pods=10_000,
    resident_bytes=120_000_000,
    restarted_bytes=100_000_000,
    cpu_percent=0.5,
    seconds=30.0,
    writes=0,
    lease_writes=15,
)
FOUND = Results(
    embedded=[0.5, 0.4, 9.0],
    kubernetes=[0.7, 0.6, 0.65],
    one_pool_bytes=47_000_000,
    rest=REST,
    roll_writes={"PATCH nodes": 200, "POST pods": 100, "PATCH runnerpools/status": 400},
)
PAGE = """# TYPE apiserver_request_total counter
apiserver_request_total{verb="POST",group="",version="v1",resource="pods",subresource="",scope="resource",code="201"} 3
apiserver_request_total{verb="PATCH",group="",version="v1",resource="pods",subresource="status",scope="resource",code="200"} 4e+00
apiserver_request_total{verb="GET",group="",version="v1",resource="pods",subresource="",scope="resource",code="200"} 9
apiserver_request_total{code="200",resource="leases",verb="PUT"} 5
apiserver_request_duration_seconds_count{verb="POST",resource="pods"} 3
"""


def test_medians_are_divided_by_the_go_controllers_figures() -> None:
    ratios = FOUND.report().ratios

    assert ratios[EMBEDDED] == round(100 / 0.5 / 26, 3)
    assert ratios[KUBERNETES] == round(100 / 0.65 / 26, 3)
    assert ratios["RSS with one pool, of the Go controller's"] == 1
    assert ratios["RSS MB with 10000 Pods"] == 100
    assert ratios[WRITES_PER_POD] == 7
    assert all(FOUND.report().met.values())


def test_each_goal_can_be_missed() -> None:
    bad = Results(
        embedded=[1.0],
        kubernetes=[1.0],
        one_pool_bytes=1,
        rest=replace(REST, writes=1),
        roll_writes={"POST pods": 801},
    )

    assert bad.report().ratios[WRITES_AT_REST] == 2
    assert not any(bad.report().met.values())


def test_last_line_is_one_json_object() -> None:
    line = json.loads(FOUND.report().line())

    assert line["bench"] == "pools"
    assert line["met"]
    assert line["figures"]["rest"]["lease_writes"] == 15


def test_writes_are_read_from_a_servers_metrics_by_resource() -> None:
    assert stage.writes_in(PAGE) == {"pods": 7, "leases": 5}


def test_resource_of_a_path_has_its_subresource() -> None:
    assert rolled_pods.resource_of("/api/v1/nodes/mac-1") == "nodes"
    assert rolled_pods.resource_of("/api/v1/namespaces/default/pods") == "pods"
    assert rolled_pods.resource_of("/api/v1/namespaces/default/pods/a/binding") == "pods/binding"
    assert rolled_pods.resource_of("/api/v1/namespaces/default") == "namespaces"
    status = "/apis/tuist.dev/v1alpha1/namespaces/default/runnerpools/macos/status"
    assert rolled_pods.resource_of(status) == "runnerpools/status"


class Silent:
    """Answers every request with an empty body."""

    async def send(self, _: Request) -> Response:
        return Response(200, {}, b"")

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        raise NotImplementedError(request.path)

    async def close(self) -> None:
        """Do nothing."""


async def test_reads_and_lease_renewals_are_not_counted_as_writes_of_a_roll() -> None:
    transport = Counting(Silent())
    pods = "/api/v1/namespaces/default/pods"
    lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/runners"
    for method, path in (("GET", pods), ("POST", pods), ("PATCH", lease), ("POST", pods)):
        await transport.send(Request(method, path))

    assert transport.writes == {"POST pods": 2}


def test_cpu_time_of_this_process_is_positive() -> None:
    assert measurements.cpu_seconds(os.getpid()) > 0


def test_pools_is_a_benchmark() -> None:
    assert BENCHES["pools"] == "bench.pools.run"
