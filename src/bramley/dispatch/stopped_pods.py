"""Handle Pods that stopped: keep the end of a failed VM's log, end its claims, and check what its job did.

The pool controller reports a Pod before it deletes it, so the log can still be read while the report is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.api.pod import Pod
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.dispatch.store.records import Claim
from bramley.dispatch.store.store import Store
from bramley.kube.client import Client

logger = log.get(__name__)

LOG_LINES = 200
MAX_LOG_BYTES = 64 * 1024
# The pool controller waits five seconds for the answer to its report.
_LOG_DEADLINE = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class StoppedPods:
    """Ends the claims of Pods; `check_claims` is called if a job may have started on one."""

    store: Store
    kube: Client
    namespace: str
    clock: Clock
    check_claims: Callable[[], None]

    async def pod_stopped(self, pod_name: str, ended_at: datetime) -> None:
        """End the claims of a Pod, and keep the end of its log if it failed."""
        claim = await self.store.claim_of_pod_name(pod_name)
        if claim is not None and claim.ended_at is None:
            await self._keep_log(claim)
        if await self.store.pod_stopped(pod_name, ended_at, self.clock.now()):
            self.check_claims()

    async def _keep_log(self, claim: Claim) -> None:
        try:
            async with asyncio.timeout(_LOG_DEADLINE.total_seconds()):
                pod = await self.kube.get(Pod, claim.pod.name, namespace=self.namespace)
                if pod.uid != claim.pod.uid or not has_failed(pod):
                    return
                text = await self._read_log(claim.pod.name)
        except (TimeoutError, errors.BramleyError) as error:
            # The report must be acknowledged nevertheless; a log is worth less than a slot.
            logger.warning(
                "Failed to read log of VM", pod=claim.pod.name, reason=type(error).__name__
            )
            return
        if text:
            await self.store.save_log(claim.handle, text, self.clock.now())

    async def _read_log(self, pod_name: str) -> str:
        content = bytearray()
        async with aclosing(self.kube.logs(pod_name, self.namespace, tail=LOG_LINES)) as chunks:
            async for chunk in chunks:
                content += chunk
                # The end is what explains a failure.
                del content[:-MAX_LOG_BYTES]
        return content.decode(errors="replace")


def has_failed(pod: Pod) -> bool:
    """Return whether a Pod ended abnormally; a workflow that fails exits with 0."""
    if pod.status.phase == "Failed":
        return True
    ended = [each.state.terminated for each in pod.status.container_statuses]
    return any(each is not None and each.exit_code != 0 for each in ended)
