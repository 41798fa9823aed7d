"""The agent's metrics, read by a scraper with a ServiceAccount's token, which the agent checks with its server's reviews."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import aiohttp

from bramley.api.core import ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.rbac import ClusterRole, ClusterRoleBinding
from tests.contract.kubelet.stage import TIMEOUT_SECONDS, Stage, Target, staged
from tests.unit.agent.serving.scene import trusting

GROUP = "rbac.authorization.k8s.io"


async def token(stage: Stage, name: str) -> str:
    place = ObjectMeta(name=name, namespace=stage.namespace)
    await stage.kube.create(ServiceAccount(metadata=place))
    issued = await stage.kube.request_token(
        name, stage.namespace, audiences=(), expires=timedelta(minutes=10)
    )
    return issued.token.reveal()


async def allow(stage: Stage, name: str) -> None:
    called = f"scraping-{stage.namespace}"
    rule = {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}
    role = {"metadata": {"name": called}, "rules": [rule]}
    await stage.kube.create_wire(ClusterRole.resource, role)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": stage.namespace}
    binding = {
        "metadata": {"name": called},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": called},
        "subjects": [subject],
    }
    await stage.kube.create_wire(ClusterRoleBinding.resource, binding)


async def read(stage: Stage, path: str, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"https://127.0.0.1:{stage.port}{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=trusting()) as answer,
    ):
        return answer.status, await answer.text()


async def test_scraper_reads_only_the_metrics_it_is_authorized_for(
    target: Target, tmp_path: Path
) -> None:
    async with staged(target, tmp_path) as stage:
        await stage.begin()
        scraper, other = await token(stage, "scraper"), await token(stage, "other")
        await allow(stage, "scraper")

        code, text = 0, ""
        # A real server applies new roles a moment later, and the agent caches a refusal for some seconds.
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while code != 200:
                code, text = await read(stage, "/metrics/resource", scraper)
        assert "node_cpu_usage_seconds_total" in text
        assert (await read(stage, "/stats/summary", scraper))[0] == 403
        assert (await read(stage, "/metrics/resource", other))[0] == 403
        assert (await read(stage, "/metrics/resource", f"{scraper}x"))[0] == 401
        assert (await read(stage, "/metrics/resource"))[0] == 401
