"""`/metrics` reports requests and the state of the store to authorized users, in a bounded number of series."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bramley.api.names import metrics as names
from bramley.apiserver.auth.bearer_tokens import ADMIN, ADMIN_GROUPS, Tokens
from bramley.apiserver.server.audit import AuditLog
from bramley.apiserver.server.audit import Settings as AuditSettings
from bramley.apiserver.server.request_metrics import RequestMetrics
from bramley.apiserver.store import damage
from bramley.apiserver.store.errors import StorageUnavailable
from bramley.apiserver.store.journal import InlineJournal
from bramley.apiserver.store.records import Change, Draft, Key
from bramley.apiserver.store.settings import Settings as StoreSettings
from bramley.apiserver.store.sqlite_file import MeasuredDisk
from bramley.apiserver.store.store import Store
from bramley.app import embedded
from bramley.kube.transport import Request
from tests import virtual_time
from tests.unit.apiserver import damaged
from tests.unit.apiserver.world import CONFIG_MAPS, CRDS, World, a_config_map, a_world, widget_crd

RBAC = "/apis/rbac.authorization.k8s.io/v1"
INLINE = StoreSettings(writer_thread=False)
OWN = [
    metric
    for metric in vars(names).values()
    if isinstance(metric, names.Metric)
    and metric.name.startswith(("apiserver_", "bramley_"))
    # Those of another process.
    and not metric.name.startswith("bramley_machines_")
]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(page: bytes) -> Samples:
    return {
        (each.name, frozenset(each.labels.items())): each.value
        for family in text_string_to_metric_families(page.decode())
        for each in family.samples
    }


def sample(found: Samples, metric: names.Metric, suffix: str = "", **labels: str) -> float:
    """Return the sum over all series that have these labels."""
    selected = set(labels.items())
    return sum(
        number
        for (name, known), number in found.items()
        if name == metric.name + suffix and selected <= known
    )


async def scraped(world: World) -> Samples:
    return samples((await world.get("/metrics")).body)


async def test_requests_are_counted_by_verb_resource_and_code() -> None:
    async with a_world() as world:
        before = await scraped(world)
        await world.create(CONFIG_MAPS, a_config_map("a"))
        await world.request("POST", CONFIG_MAPS, a_config_map("a"))
        for path in (CONFIG_MAPS, f"{CONFIG_MAPS}/a", f"{CONFIG_MAPS}/b"):
            await world.get(path)
        await world.delete(CONFIG_MAPS)
        found = await scraped(world)

    def count(verb: str, scope: str, code: str) -> float:
        labels = {"verb": verb, "scope": scope, "code": code, "resource": "configmaps"}
        return sample(found, names.API_REQUESTS, **labels)

    assert sample(before, names.API_REQUESTS, resource="configmaps") == 0
    assert [count("POST", "resource", code) for code in ("201", "409")] == [1, 1]
    assert [count("GET", "resource", code) for code in ("200", "404")] == [1, 1]
    assert count("LIST", "namespace", "200") == 1
    assert count("DELETECOLLECTION", "namespace", "200") == 1
    duration = names.API_REQUEST_DURATION
    assert sample(found, duration, "_count", resource="configmaps") == 6
    assert sample(found, duration, "_bucket", resource="configmaps", le="+Inf") == 6


async def test_applies_and_other_patches_are_counted_separately() -> None:
    async with a_world() as world:
        path = f"{CONFIG_MAPS}/a?fieldManager=me"
        whole = {"apiVersion": "v1", "kind": "ConfigMap", **a_config_map("a")}
        await world.request("PATCH", path, whole, content_type="application/apply-patch+yaml")
        await world.merge(f"{CONFIG_MAPS}/a", {"data": {"key": "other"}})
        found = await scraped(world)

    assert sample(found, names.API_REQUESTS, verb="APPLY", code="201") == 1
    assert sample(found, names.API_REQUESTS, verb="PATCH", code="200") == 1


async def test_watch_is_a_gauge_while_open_and_counted_when_it_ends() -> None:
    async with a_world() as world:
        for path in (f"{CONFIG_MAPS}?watch=1", "/api/v1/watch/namespaces/t/configmaps"):
            async with world.watching(path):
                open_now = await scraped(world)
        ended = await scraped(world)

    assert sample(open_now, names.API_WATCHERS, resource="configmaps") == 1
    assert sample(open_now, names.API_IN_FLIGHT, lane="longrunning") == 1
    assert sample(open_now, names.API_REQUESTS, verb="WATCH") == 1
    assert sample(ended, names.API_WATCHERS) == 0
    assert sample(ended, names.API_REQUESTS, verb="WATCH", code="200") == 2


async def test_refused_requests_are_counted_by_their_resource() -> None:
    async with a_world() as world:
        await world.request("GET", CONFIG_MAPS, token="wrong")
        await world.request("GET", CONFIG_MAPS, token=None)
        found = await scraped(world)

    assert sample(found, names.API_REQUESTS, resource="configmaps", code="401") == 1
    assert sample(found, names.API_REQUESTS, resource="configmaps", code="403") == 1


async def test_no_text_of_a_path_becomes_a_label() -> None:
    async with a_world() as world:
        await world.create(CONFIG_MAPS, a_config_map("a"))
        for number in range(50):
            await world.get(f"/api/v1/x{number}")
            await world.get(f"/apis/x{number}.example.com/v1/things")
            await world.get(f"{CONFIG_MAPS}/a/x{number}")
            await world.get(f"{CONFIG_MAPS}/x{number}")
            await world.request(f"X{number}", CONFIG_MAPS)
        found = await scraped(world)

    values = {value for _, labels in found for _, value in labels}
    assert not {value for value in values if value.startswith(("x", "X"))}
    assert sample(found, names.API_REQUESTS, verb="other") == 50


async def test_beyond_a_limit_all_further_requests_share_one_series() -> None:
    async with a_world() as world:
        world.app.api.requests = world.app.metric_sources.requests = RequestMetrics(max_series=3)
        for resource in ("pods", "secrets", "services", "events", "nodes"):
            await world.get(f"/api/v1/{resource}")
        found = await scraped(world)

    kinds = {key for key in found if key[0] == f"{names.API_REQUEST_DURATION.name}_count"}
    assert len(kinds) == 4
    assert sample(found, names.API_REQUESTS, resource="other") == 2


async def test_metrics_need_permission_for_the_path() -> None:
    async with a_world() as world:
        world.users["prometheus"] = "prometheus"
        refused = await world.request("GET", "/metrics", token="prometheus")
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "prometheus"}
        role = {"apiGroup": subject["apiGroup"], "kind": "ClusterRole", "name": "system:monitoring"}
        body = {"metadata": {"name": "scraping"}, "roleRef": role, "subjects": [subject]}
        await world.create(f"{RBAC}/clusterrolebindings", body)
        allowed = await world.request("GET", "/metrics", token="prometheus")
        changed = await world.request("POST", "/metrics")

    assert (refused.code, allowed.code, changed.code) == (403, 200, 405)
    assert 'cannot get path "/metrics"' in refused.message
    assert allowed.header("content-type")[0].startswith("text/plain; version=")


async def test_objects_and_revision_of_the_store_are_exported() -> None:
    async with a_world() as world:
        await world.create(CRDS, widget_crd())
        await world.create(CONFIG_MAPS, a_config_map("a"))
        found = await scraped(world)

        assert sample(found, names.STORE_REVISION) == world.store.revision > 0
    assert sample(found, names.STORE_OBJECTS, resource="configmaps") == 1
    assert sample(found, names.STORE_PENDING_WRITES) == 0


async def test_unreadable_objects_are_exported_until_replaced() -> None:
    async with a_world() as world:
        services = world.catalog.find("", "v1", "services")
        assert services is not None
        key = await damaged.put(world.store, services, "bad", {"spec": 7})
        found = [await scraped(world)]
        ports = {"spec": {"type": "NodePort", "ports": [{"port": 80}]}}
        path = "/api/v1/namespaces/t/services"
        await world.create(path, {"metadata": {"name": "good"}, **ports})
        found.append(await scraped(world))
        await world.store.write(
            key, lambda _, rv: Draft(b'{"metadata":{"name":"bad"},"rv":%d}' % rv)
        )
        found.append(await scraped(world))

    counts = [sample(each, names.STORE_MISFIT_OBJECTS, resource="services") for each in found]
    assert counts == [0, 1, 0]


class FullDisk:
    """A disk that takes nothing."""

    def commit(self, group: Sequence[Change]) -> None:
        raise StorageUnavailable(f"no room for {len(group)}")

    def close(self) -> None:
        """Do nothing."""


@asynccontextmanager
async def on_disk(folder: Path, audit: AuditLog | None = None) -> AsyncIterator[embedded.Api]:
    clock = virtual_time.clock()
    async with Store.open(folder, INLINE, clock=clock, check_record=damage.check_envelope) as store:
        tokens = Tokens.in_memory()
        rng = random.Random(1)
        yield embedded.build(store, tokens, clock=clock, rng=rng, audit=audit).api


async def request(api: embedded.Api, method: str, path: str, body: bytes | None = None) -> bytes:
    token = api.tokens.issue(ADMIN, ADMIN_GROUPS)
    kind = "application/json" if body else None
    request = Request(method, path, body=body, content_type=kind)
    return (await api.transport(token).send(request)).body


async def test_damaged_objects_are_exported_until_deleted(tmp_path: Path) -> None:
    key = Key("configmaps", "default", "bad")
    async with Store.open(tmp_path, INLINE) as store:
        await store.write(key, lambda *_: Draft(b'{"metadata":7}'))
    async with on_disk(tmp_path) as api:
        found = samples(await request(api, "GET", "/metrics"))
        await request(api, "DELETE", "/api/v1/namespaces/default/configmaps/bad")
        after = samples(await request(api, "GET", "/metrics"))

    assert sample(found, names.STORE_DAMAGED_OBJECTS, resource="configmaps") == 1
    assert sample(after, names.STORE_DAMAGED_OBJECTS) == 0


async def test_commits_and_file_sizes_are_exported(tmp_path: Path) -> None:
    async with on_disk(tmp_path) as api:
        await request(api, "GET", "/api/v1/namespaces")
        found = samples(await request(api, "GET", "/metrics"))
        revision = api.store.revision

    # Without the writer's thread each write is its own commit.
    assert sample(found, names.STORE_COMMIT_DURATION, "_count") == revision > 0
    assert sample(found, names.STORE_COMMIT_FAILURES) == 0
    assert sample(found, names.STORE_FILE_BYTES, file="database") > 0
    assert sample(found, names.STORE_FILE_BYTES, file="log") > 0


async def test_failed_commits_are_exported(tmp_path: Path) -> None:
    disk = MeasuredDisk(FullDisk(), tmp_path / "none")
    clock = virtual_time.clock()
    async with Store(partial(InlineJournal, disk), clock=clock, disk=disk) as store:
        api = embedded.build(store, Tokens.in_memory(), clock=clock, rng=random.Random(1)).api
        await request(api, "GET", "/api/v1/namespaces")
        found = samples(await request(api, "GET", "/metrics"))

    assert sample(found, names.STORE_COMMIT_FAILURES) > 0
    assert sample(found, names.STORE_COMMIT_DURATION, "_count") == 0
    assert sample(found, names.API_REQUESTS, code="507") == 1


async def test_written_and_lost_audit_lines_are_exported(tmp_path: Path) -> None:
    settings = AuditSettings(queue_limit=2)
    log = AuditLog(tmp_path / "audit.log", clock=virtual_time.clock(), settings=settings)
    async with on_disk(tmp_path / "data", log) as api:
        for name in ("a", "b", "c"):
            body = b'{"metadata":{"name":"%s"}}' % name.encode()
            await request(api, "POST", "/api/v1/namespaces", body)
        # Only its end waits for the thread that writes.
        log.close()
        found = samples(await request(api, "GET", "/metrics"))

    assert sample(found, names.AUDIT_LINES_LOST) == 1
    written = (tmp_path / "audit.log").read_bytes().count(b"\n")
    assert sample(found, names.AUDIT_LINES) == written == 3


async def test_audit_lines_that_cannot_be_written_are_counted_as_lost(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = AuditLog(tmp_path / "file" / "audit.log", clock=virtual_time.clock())
    log.record_start(1)
    log.close()

    assert (log.lines, log.lost) == (0, 1)


async def test_metrics_of_the_controllers_are_on_the_same_page() -> None:
    async with embedded.running(clock=virtual_time.clock(), controllers=True) as (api, token):
        page = await api.transport(token).send(Request("GET", "/metrics"))

    assert b"\nbramley_queue_adds_total{" in page.body
    assert b"\napiserver_request_total{" in page.body


async def test_every_name_of_the_contract_is_on_the_page(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", clock=virtual_time.clock())
    async with on_disk(tmp_path / "data", log) as api:
        page = (await request(api, "GET", "/metrics")).decode()
        log.close()

    assert OWN
    assert [each.name for each in OWN if f"# TYPE {each.name} {each.type}\n" not in page] == []
