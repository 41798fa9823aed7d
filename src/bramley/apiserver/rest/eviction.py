"""The eviction subresource of Pods: a deletion that the Pod's disruption budget must allow.

The disruption controller counts Pods; this only decrements `disruptionsAllowed` and adds the Pod to `disruptedPods`.
"""

from __future__ import annotations

from msgspec.structs import replace

from bramley.apiserver.apimachinery import metadata, status
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.http.exchange import Request, Response, json_response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.kinds import label_selectors
from bramley.apiserver.kinds.definitions import kind
from bramley.apiserver.registry.resources import Json
from bramley.apiserver.rest import bodies, delete, objects, request_options
from bramley.apiserver.rest.graceful_deletion import check_preconditions, decide_deletion
from bramley.apiserver.rest.objects import with_condition
from bramley.apiserver.rest.request_options import DeleteOptions
from bramley.apiserver.rest.server import Server, decoded, existing, served
from bramley.apiserver.rest.writes import Decision, Put, write
from bramley.apiserver.store.records import Record
from bramley.base.errors import Cause

EVICTION = kind("Eviction", group="policy")
_BUDGETS = "poddisruptionbudgets.policy"
_VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_ENDED = frozenset({"Succeeded", "Failed"})
_MAX_DISRUPTED = 2000
_RETRY_SECONDS = 10
_TRIES = 5


async def create_eviction(server: Server, request: Request, target: Target) -> Response:
    """Evict a Pod, if its disruption budget allows that."""
    write_options = request_options.write_options(request, "CreateOptions")
    body = await bodies.read_object(request, EVICTION, write_options)
    objects.set_namespace(body, target.namespace)
    if body["metadata"].get("name", "") != target.name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    options = request_options.delete_options(body.get("deleteOptions", {}), request)
    await _evict(server, target, replace(options, dry_run=options.dry_run or write_options.dry_run))
    return json_response(status.created(), 201)


async def _evict(server: Server, target: Target, options: DeleteOptions) -> None:
    for tries_left in reversed(range(_TRIES)):
        record = existing(server.store.get(target.key), target.resource, target.name)
        pod = served(record, target.resource)
        is_free = _has_ended(pod) or pod["status"].get("phase") == "Pending"
        # Before the deletion: if that never happens, the disruption controller restores the budget after two minutes.
        budget = "" if is_free else await _consume_budget(server, pod, dry_run=options.dry_run)
        # A Pod that needed no budget may need one after a change, so only the version that was checked may be deleted.
        pinned = not _has_ended(pod) if is_free else not _is_ready(pod) and bool(budget)
        version = pod["metadata"]["resourceVersion"]
        pinned_options = (
            replace(options, version=version) if pinned and not options.version else options
        )
        try:
            await _remove(server, target, pinned_options)
        except ApiError as error:
            if error.code != 409 or pinned_options is options:
                raise
            if budget:
                raise _being_processed(budget) from None
            if not tries_left:
                raise
        else:
            return


def _has_ended(pod: Json) -> bool:
    return pod["status"].get("phase") in _ENDED or "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def _consume_budget(server: Server, pod: Json, *, dry_run: bool) -> str:
    """Decrement what the Pod's budget allows; return the budget's name, or an empty text if there is none."""
    budgets = _budgets_of(server, pod)
    if not budgets:
        return ""
    if len(budgets) > 1:
        raise ApiError(500, "", _SEVERAL)
    budget = decoded(budgets[0])
    if not _is_ready(pod) and _allows_unready(budget):
        return str(budget["metadata"]["name"])
    resource = server.catalog.find("policy", "v1", "poddisruptionbudgets")
    if resource is None:
        raise status.no_such_path()
    now = metadata.timestamp(server.clock.now())

    def decide(current: Record | None) -> Decision:
        stored = served(existing(current, resource, budgets[0].key.name), resource)
        # Against the newest budget, so that concurrent evictions do not use the same disruption twice.
        return Put(_decremented(stored, pod["metadata"]["name"], now))

    await write(server, resource, budgets[0].key, decide, dry_run=dry_run)
    return str(budget["metadata"]["name"])


def _budgets_of(server: Server, pod: Json) -> list[Record]:
    labels = pod["metadata"].get("labels", {})
    budgets = []
    for each in server.store.list(_BUDGETS, pod["metadata"]["namespace"]):
        # kube-apiserver, too, skips a budget with an invalid selector.
        with server.store.damage.skip_unreadable(each):
            if label_selectors.matches(decoded(each)["spec"].get("selector"), labels):
                budgets.append(each)
    return budgets


def _allows_unready(budget: Json) -> bool:
    """Return whether an unready Pod may be evicted without being counted."""
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired = budget["status"]["desiredHealthy"]
    return bool(desired) and budget["status"]["currentHealthy"] >= desired


def _decremented(budget: Json, pod_name: str, now: str) -> Json:
    name, budget_status = budget["metadata"]["name"], budget["status"]
    # The counts are those of an older spec.
    if budget_status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _being_processed(name)
    if len(budget_status.get("disruptedPods", {})) > _MAX_DISRUPTED:
        reason = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise status.forbidden(Details("policy", "poddisruptionbudget", name), reason)
    if not budget_status["disruptionsAllowed"]:
        message = f"The disruption budget {name} needs {budget_status['desiredHealthy']} healthy pods and has {budget_status['currentHealthy']} currently"
        raise _budget_error(message, retry_after=0)
    disrupted = {**budget_status.get("disruptedPods", {}), pod_name: now}
    allowed = budget_status["disruptionsAllowed"] - 1
    return {
        **budget,
        "status": {**budget_status, "disruptionsAllowed": allowed, "disruptedPods": disrupted},
    }


def _being_processed(name: str) -> ApiError:
    message = f"The disruption budget {name} is still being processed by the server."
    return _budget_error(message, retry_after=_RETRY_SECONDS)


def _budget_error(message: str, *, retry_after: int) -> ApiError:
    cause = Cause("", "DisruptionBudget", message)
    return ApiError(429, "TooManyRequests", _VIOLATED, causes=[cause], retry_after=retry_after)


async def _remove(server: Server, target: Target, options: DeleteOptions) -> None:
    """Set the DisruptionTarget condition on the Pod, then delete it."""
    resource, now = target.resource, metadata.timestamp(server.clock.now())
    versions: list[str] = []

    def note(current: Record | None) -> Decision:
        pod = served(existing(current, resource, target.name), resource)
        check_preconditions(pod, resource, options)
        message = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
        return Put(with_condition(pod, "DisruptionTarget", now, **message))

    if not options.dry_run:
        noted = await write(server, resource, target.key, note)
        versions.append(bodies.from_json(noted.body)["metadata"]["resourceVersion"])
    # Setting the condition has changed the version that was pinned.
    pinned_options = (
        replace(options, version=versions[0]) if versions and options.version else options
    )
    decide = decide_deletion(server, resource, target.name, pinned_options)
    write_options = await write(server, resource, target.key, decide, dry_run=options.dry_run)
    if not options.dry_run:
        await delete.after_write(server, resource, target.key, write_options.decision)
