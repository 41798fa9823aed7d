from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from bramley.base import errors
from bramley.runtime.probes import Probes, ProbeSettings
from tests.unit.runtime.informer_harness import running

pytestmark = pytest.mark.real_time


@asynccontextmanager
async def served(probes: Probes) -> AsyncIterator[aiohttp.ClientSession]:
    async with running(probes.run()):
        async with asyncio.timeout(60):
            await probes.ready.wait()
        base = f"http://127.0.0.1:{probes.port}"
        async with aiohttp.ClientSession(base) as session:
            yield session


async def answer(session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with session.get(path) as response:
        return response.status, await response.text()


async def test_healthy_process_answers_ok() -> None:
    async with served(Probes(ProbeSettings(), CollectorRegistry())) as session:
        assert await answer(session, "/healthz") == (200, "ok")
        assert await answer(session, "/readyz") == (200, "ok")


async def test_unready_process_names_the_failed_check_and_why() -> None:
    probes = Probes(ProbeSettings(), CollectorRegistry())
    probes.add_ready_check("cache/pods", lambda: "not synced yet")
    async with served(probes) as session:
        status, text = await answer(session, "/readyz")

        assert status == 503
        assert text == "[-]cache/pods failed: not synced yet\n[+]ping ok\ncheck failed\n"
        assert await answer(session, "/healthz") == (200, "ok")


async def test_verbose_lists_every_check() -> None:
    probes = Probes(ProbeSettings(), CollectorRegistry())
    probes.add_health_check("loop", lambda: "")
    async with served(probes) as session:
        assert await answer(session, "/healthz?verbose") == (
            200,
            "[+]loop ok\n[+]ping ok\ncheck passed\n",
        )


async def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("apples_total", "Apples.", registry=registry).inc(3)
    async with served(Probes(ProbeSettings(health=False), registry)) as session:
        status, text = await answer(session, "/metrics")

        assert status == 200
        assert "apples_total 3.0" in text
        assert (await answer(session, "/healthz"))[0] == 404


async def test_port_in_use_is_named_in_the_error() -> None:
    first = Probes(ProbeSettings(), CollectorRegistry())
    async with served(first):
        second = Probes(ProbeSettings(port=first.port), CollectorRegistry())
        with pytest.raises(errors.BadConfiguration) as refusal:
            await second.run()
        assert f"127.0.0.1:{first.port}: Address already in use" in str(refusal.value)


async def test_nothing_listens_after_the_end() -> None:
    probes = Probes(ProbeSettings(), CollectorRegistry())
    async with served(probes):
        port = probes.port

    with pytest.raises(OSError, match=r"refused|Connect"):
        await asyncio.open_connection("127.0.0.1", port)


async def test_loopback_is_the_default() -> None:
    assert ProbeSettings().host == "127.0.0.1"
