"""The decision to delete an object: now, after a grace period, or when its finalizers are removed.

The propagation policy is only stored, as finalizers; the garbage collector acts on it. Handlers are in `delete`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from bramley.apiserver.apimachinery import metadata, status
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest.objects import dict_field
from bramley.apiserver.rest.request_options import DeleteOptions
from bramley.apiserver.rest.server import Server, existing, served
from bramley.apiserver.rest.writes import Decide, Decision, Keep, Put, Remove
from bramley.apiserver.store.records import Record

_GARBAGE_FINALIZERS = (metadata.ORPHAN, metadata.FOREGROUND)

# About 68 years; longer periods could exceed the range of dates.
MAX_GRACE_SECONDS = 2**31 - 1


def decide_deletion(
    server: Server, resource: ServedResource, name: str, options: DeleteOptions
) -> Decide:
    """Return the decision to delete an object."""
    now = server.clock.now()

    def decide(current: Record | None) -> Decision:
        current = existing(current, resource, name)
        old = served(current, resource)
        check_preconditions(old, resource, options)
        return _decide(old, current, resource, options=options, now=now)

    return decide


def check_preconditions(old: Json, resource: ServedResource, options: DeleteOptions) -> None:
    """Raise a 409 when the object's UID or version is not that of the preconditions."""
    meta = old["metadata"]
    details = resource.kind_details(meta["name"])
    if options.uid is not None and options.uid != meta["uid"]:
        reason = f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). The object might have been deleted and then recreated"
        raise status.conflict(details, reason)
    if options.version is not None and options.version != meta["resourceVersion"]:
        reason = f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in record ({meta['resourceVersion']}). The object might have been modified"
        raise status.conflict(details, reason)


def _decide(
    old: Json, current: Record, resource: ServedResource, *, options: DeleteOptions, now: datetime
) -> Decision:
    meta = dict(old["metadata"])
    graceful = resource.strategy.graceful and _set_grace(meta, old, options, now)
    if graceful is None:
        return Keep(current)
    set_finalizers(meta, _with_default(options, meta, resource))
    pending = bool(meta.get("finalizers"))
    if pending and not graceful:
        mark_deleted(meta, now)
    last = {**old, "metadata": meta}
    if not pending and not meta.get("deletionGracePeriodSeconds"):
        return Remove(last)
    if not pending and not graceful:
        return Remove(last)
    return Keep(current) if last == old else Put(last)


def _with_default(options: DeleteOptions, meta: Json, resource: ServedResource) -> DeleteOptions:
    """Return the options with the default of the oldest kinds, which orphan their dependents."""
    silent = options.orphan is None and not options.propagation
    decided = any(each in _GARBAGE_FINALIZERS for each in meta.get("finalizers", []))
    if resource.strategy.orphans_by_default and silent and not decided:
        return replace(options, propagation="Orphan")
    return options


def mark_deleted(meta: Json, now: datetime) -> None:
    """Set the deletion time without a grace period: only finalizers still block the deletion."""
    if "deletionTimestamp" not in meta and meta.get("generation"):
        meta["generation"] += 1
    if meta.get("deletionTimestamp", "9") > metadata.timestamp(now):
        meta["deletionTimestamp"] = metadata.timestamp(now)
    meta["deletionGracePeriodSeconds"] = 0


def _set_grace(meta: Json, old: Json, options: DeleteOptions, now: datetime) -> bool | None:
    """Set the end of the grace period; return False if there is none left, and None if an earlier end is already set."""
    if "deletionTimestamp" in meta:
        return _shorten_grace(meta, options, now)
    seconds = _grace_seconds(old, options)
    meta["deletionTimestamp"] = metadata.timestamp(now + timedelta(seconds=seconds))
    meta["deletionGracePeriodSeconds"] = seconds
    if meta.get("generation"):
        meta["generation"] += 1
    return True


def _grace_seconds(old: Json, options: DeleteOptions) -> int:
    spec = dict_field(old, "spec")
    has_ended = dict_field(old, "status").get("phase") in ("Succeeded", "Failed")
    # No agent runs it, so nothing would end a grace period.
    if not spec.get("nodeName") or has_ended:
        return 0
    seconds_in_spec = spec.get("terminationGracePeriodSeconds")
    seconds = seconds_in_spec if isinstance(seconds_in_spec, int) else 0
    if options.grace_seconds is not None:
        seconds = options.grace_seconds
    # Kubernetes reads a negative period as one second.
    return min(seconds, MAX_GRACE_SECONDS) if seconds >= 0 else 1


def _shorten_grace(meta: Json, options: DeleteOptions, now: datetime) -> bool | None:
    granted: int = meta.get("deletionGracePeriodSeconds") or 0
    if not granted:
        return False
    if options.grace_seconds is None:
        return None
    seconds = options.grace_seconds if options.grace_seconds >= 0 else 1
    # A repeated deletion may only shorten the period.
    if seconds >= granted:
        return None
    end = datetime.fromisoformat(meta["deletionTimestamp"]) + timedelta(seconds=seconds - granted)
    if end < now:
        end, seconds = now, min(seconds, 1)
    meta["deletionTimestamp"] = metadata.timestamp(end)
    meta["deletionGracePeriodSeconds"] = seconds
    return True


def set_finalizers(meta: Json, options: DeleteOptions) -> None:
    """Set the finalizers of the propagation policy, if the options have one."""
    finalizer = _garbage_finalizer(options)
    if finalizer is None:
        return
    current: list[str] = meta.get("finalizers", [])
    others = [each for each in current if each not in _GARBAGE_FINALIZERS]
    new = [*others, *finalizer]
    if set(new) != set(current):
        meta["finalizers"] = new
    if not meta.get("finalizers"):
        meta.pop("finalizers", None)


def _garbage_finalizer(options: DeleteOptions) -> list[str] | None:
    if options.orphan is not None:
        return [metadata.ORPHAN] if options.orphan else []
    named: dict[str, list[str]] = {
        "Orphan": [metadata.ORPHAN],
        "Foreground": [metadata.FOREGROUND],
        "Background": [],
    }
    return named.get(options.propagation)
