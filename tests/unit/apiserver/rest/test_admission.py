"""What admission adds to new objects: accounts and tokens, priorities, taints, addresses."""

from __future__ import annotations

import asyncio

from bramley.apiserver.apimachinery.settings import Settings
from tests.unit.apiserver.world import PODS, Json, World, a_pod, a_world

ACCOUNTS = "/api/v1/namespaces/t/serviceaccounts"
SERVICES = "/api/v1/namespaces/t/services"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
AS_A_CLUSTER = Settings(cluster_admission=True)
MOUNTED_AT = "/var/run/secrets/kubernetes.io/serviceaccount"


async def an_account(world: World, name: str, **more: object) -> None:
    await world.create(ACCOUNTS, {"metadata": {"name": name}, **more})


def a_service(name: str, **spec: object) -> Json:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def test_token_volume_equals_that_of_a_real_server() -> None:
    async with a_world(AS_A_CLUSTER) as world:
        await an_account(world, "default")

        spec = (await world.create(PODS, a_pod("a"))).json["spec"]

        volume = spec["volumes"][0]
        assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
        mount = {"name": volume["name"], "readOnly": True, "mountPath": MOUNTED_AT}
        assert spec["containers"][0]["volumeMounts"] == [mount]
        assert volume["name"].startswith("kube-api-access-")
        field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
        root = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
        assert volume["projected"] == {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": root},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
            ],
        }


async def test_container_with_its_own_mount_at_the_path_gets_no_token() -> None:
    async with a_world(AS_A_CLUSTER) as world:
        await an_account(world, "default")
        pod = a_pod("a", volumes=[{"name": "v"}])
        pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": MOUNTED_AT}]

        spec = (await world.create(PODS, pod)).json["spec"]

        assert [each["name"] for each in spec["volumes"]] == ["v"]


async def test_pod_or_account_may_disable_the_token() -> None:
    async with a_world(AS_A_CLUSTER) as world:
        await an_account(world, "default")
        secrets = [{"name": "pull"}]
        await an_account(
            world, "bare", automountServiceAccountToken=False, imagePullSecrets=secrets
        )

        own = a_pod("a", automountServiceAccountToken=False)
        by_pod = (await world.create(PODS, own)).json["spec"]
        by_account = (await world.create(PODS, a_pod("b", serviceAccountName="bare"))).json["spec"]
        insists = a_pod("c", serviceAccountName="bare", automountServiceAccountToken=True)
        both = (await world.create(PODS, insists)).json["spec"]

        assert ["volumes" in each for each in (by_pod, by_account, both)] == [False, False, True]
        assert by_account["imagePullSecrets"] == secrets


async def test_an_account_that_does_not_exist_is_refused() -> None:
    async with a_world(AS_A_CLUSTER) as world:
        refused = await world.request("POST", PODS, a_pod("a", serviceAccountName="missing"))

        why = 'error looking up service account t/missing: serviceaccount "missing" not found'
        assert (refused.code, refused.message) == (403, f'pods "a" is forbidden: {why}')


async def test_pod_creation_waits_briefly_for_the_default_account() -> None:
    async with a_world(AS_A_CLUSTER) as world:

        async def late() -> None:
            await asyncio.sleep(0.5)
            await an_account(world, "default")

        async with asyncio.TaskGroup() as group:
            group.create_task(late())
            created = group.create_task(world.request("POST", PODS, a_pod("a")))
        refused = await world.request("POST", "/api/v1/namespaces/default/pods", a_pod("b"))

        assert (created.result().code, refused.code) == (201, 403)


async def test_without_controllers_no_account_is_required(world: World) -> None:
    spec = (await world.create(PODS, a_pod("a"))).json["spec"]

    assert "serviceAccountName" not in spec


async def test_a_new_node_is_tainted_until_it_is_ready_where_controllers_run() -> None:
    async with a_world(AS_A_CLUSTER) as world:
        taints = [{"key": "x", "effect": "NoExecute"}]
        node = {"metadata": {"name": "n"}, "spec": {"taints": taints}}

        created = (await world.create("/api/v1/nodes", node)).json

        added = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        assert created["spec"]["taints"] == [*taints, added]
        cleared = await world.merge("/api/v1/nodes/n", {"spec": {"taints": None}})
        assert "taints" not in cleared.json["spec"]


async def test_pod_gets_the_priority_of_its_class(world: World) -> None:
    await world.create(PRIORITIES, {"metadata": {"name": "high"}, "value": 9})
    await world.create(PODS, a_pod("a", priorityClassName="high"))
    whole = a_pod("a", priorityClassName="high")

    replaced = await world.request("PUT", f"{PODS}/a", whole)

    assert (replaced.code, replaced.json["spec"]["priority"]) == (200, 9)


async def test_lowest_default_priority_class_is_used(world: World) -> None:
    body = {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True}
    await world.create(PRIORITIES, body)

    spec = (await world.create(PODS, a_pod("a"))).json["spec"]

    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 3)


async def test_every_service_gets_a_unique_address(world: World) -> None:
    bodies = [a_service(f"s{number}") for number in range(40)]

    made = await asyncio.gather(*(world.request("POST", SERVICES, body) for body in bodies))

    found = [each.json["spec"]["clusterIP"] for each in made]
    assert len(set(found)) == 40
    api = (await world.get("/api/v1/namespaces/default/services/kubernetes")).json
    assert api["spec"]["clusterIP"] == "10.0.0.1"
    assert "10.0.0.1" not in found


async def test_exhausted_service_range_is_an_error_and_freed_addresses_are_reused() -> None:
    async with a_world(Settings(service_range="192.0.2.0/29")) as world:
        for number in range(5):
            await world.create(SERVICES, a_service(f"s{number}"))

        refused = await world.request("POST", SERVICES, a_service("more"))
        freed = (await world.delete(f"{SERVICES}/s3")).json["spec"]["clusterIP"]
        again = await world.create(SERVICES, a_service("more"))

        assert refused.code == 500
        assert again.json["spec"]["clusterIP"] == freed


async def test_dry_run_or_refused_service_keeps_no_address() -> None:
    async with a_world(Settings(service_range="192.0.2.0/30")) as world:
        for _ in range(3):
            await world.request("POST", f"{SERVICES}?dryRun=All", a_service("a"))
            await world.request("POST", SERVICES, a_service("a", type="Perhaps"))

        assert (await world.request("POST", SERVICES, a_service("a"))).code == 201


async def test_deleted_services_free_their_addresses() -> None:
    async with a_world(Settings(service_range="192.0.2.0/30")) as world:
        for _ in range(3):
            await world.create(SERVICES, a_service("a"))
            await world.delete(f"{SERVICES}/a")


async def test_node_ports_are_allocated_and_kept(world: World) -> None:
    made = (await world.create(SERVICES, a_service("a", type="NodePort"))).json
    port = made["spec"]["ports"][0]["nodePort"]

    replaced = (await world.request("PUT", f"{SERVICES}/a", a_service("a", type="NodePort"))).json

    assert 30000 <= port < 32768
    assert replaced["spec"]["ports"][0]["nodePort"] == port
    assert replaced["spec"]["clusterIP"] == made["spec"]["clusterIP"]
