"""The endpoint of GitHub's webhooks: verified, stored durably, acknowledged; processed afterwards by the inbox worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bramley.api.names import dispatch
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.dispatch.forge import Forge
from bramley.dispatch.inbox_worker import InboxWorker
from bramley.dispatch.metrics import Counts
from bramley.dispatch.server.requests import OnRefusal, answer, guarded, read_body
from bramley.dispatch.store.store import Store
from bramley.dispatch.webhook_payload import MAX_BODY_BYTES

_EVENT, _DELIVERY = "x-github-event", "x-github-delivery"
_WORKFLOW_JOB = "workflow_job"
_FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class WebhookRoutes:
    """Stores webhooks."""

    store: Store
    forge: Forge
    inbox: InboxWorker
    clock: Clock
    counts: Counts
    on_refusal: OnRefusal

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        handler = guarded(self.receive, self.on_refusal)
        return (Route(dispatch.WEBHOOK_PATH, handler, methods=["POST"]),)

    async def receive(self, request: Request) -> Response:
        """Store a webhook: 200 once it is durable, 401 without a signature, 403 with a wrong one, 400 for a form, 503 to have it sent again."""
        # Before the body: what is not signed is not read.
        if dispatch.SIGNATURE_HEADER.lower() not in request.headers:
            self.counts.inc("", "unsigned")
            raise errors.Unauthorized(f"the header {dispatch.SIGNATURE_HEADER} is missing")
        body = await read_body(request, MAX_BODY_BYTES)
        if not self.forge.is_signed(request.headers, body):
            self.counts.inc("", "bad_signature")
            raise errors.Forbidden("the signature does not match the webhook secret")
        # Also of a ping, so that the answer is seen as soon as the App is created.
        if request.headers.get("content-type", "").lower().startswith(_FORM):
            self.counts.inc("", "invalid")
            raise errors.BadRequest(
                "the body is a form; set the content type of the webhook to application/json"
            )
        event = request.headers.get(_EVENT, "")
        if event != _WORKFLOW_JOB:
            self.counts.inc("", "ignored")
            return answer(200, {"result": "ignored"})
        guid = request.headers.get(_DELIVERY, "")
        is_new = await self.store.receive(guid, event, body, self.clock.now())
        if is_new:
            self.inbox.wake()
        else:
            self.counts.inc("", "duplicate")
        return answer(200, {"result": "stored" if is_new else "duplicate"})
