"""Events: stored once and served by two groups; `events.k8s.io` has some fields under other names."""

from __future__ import annotations

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.kinds.definitions import kind
from bramley.apiserver.registry.resources import Json, SelectableField, Strategy
from bramley.base.errors import Cause

_RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {served: stored for stored, served in _RENAMED.items()}
_LIMITS_BYTES = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_ABOUT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_MUST_BE_UNSET = ("firstTimestamp", "lastTimestamp", "count", "source")
CORE_FIELDS = (
    *(SelectableField(f"involvedObject.{part}", ("involvedObject", part)) for part in _ABOUT),
    SelectableField("reason", ("reason",)),
    SelectableField("reportingComponent", ("reportingComponent",)),
    SelectableField("source", ("source", "component")),
    SelectableField("type", ("type",)),
)
NEW_FIELDS = (
    *(
        SelectableField(f"regarding.{part}", ("involvedObject", part), "", f"involvedObject.{part}")
        for part in _ABOUT
    ),
    SelectableField("reason", ("reason",)),
    SelectableField("reportingController", ("reportingComponent",), "", "reportingComponent"),
    SelectableField("type", ("type",)),
)


class Renaming:
    """Converts between the stored form, which is that of the core group, and the form of `events.k8s.io`."""

    def to_served(self, stored: Json) -> Json:
        """Return a stored event as `events.k8s.io` shows it."""
        renamed = {_RENAMED.get(key, key): value for key, value in stored.items() if value != ""}
        return {**renamed, "apiVersion": "events.k8s.io/v1"}

    def to_stored(self, served: Json) -> Json:
        """Return an event of `events.k8s.io` as it is stored."""
        renamed = {_BACK.get(key, key): value for key, value in served.items()}
        default(renamed)
        return {**renamed, "apiVersion": "v1"}


def default(new: Json) -> None:
    """Set the fields that kube-apiserver always shows of a core event."""
    new.setdefault("involvedObject", {})
    new.setdefault("source", {})
    for field in ("firstTimestamp", "lastTimestamp", "eventTime"):
        new.setdefault(field, None)
    for field in ("reportingComponent", "reportingInstance"):
        new.setdefault(field, "")


def default_new(new: Json) -> None:
    """Set the defaults of an event of `events.k8s.io`, those of its stored form."""
    new.update(Renaming().to_served(Renaming().to_stored(new)))


def check(new: Json) -> list[Cause]:
    """Return what is wrong with an event of the core group."""
    return _wrong(new, "reportingComponent")


def check_new(new: Json) -> list[Cause]:
    """Return what is wrong with an event of `events.k8s.io`, which requires more fields."""
    stored = Renaming().to_stored(new)
    errors = _wrong(stored, "reportingController")
    if not stored.get("eventTime"):
        errors.append(causes.required("eventTime"))
    if stored.get("type") not in {"Normal", "Warning"}:
        detail = f"has invalid value: {stored.get('type', '')}"
        errors.append(causes.invalid("type", "", detail))
    return errors + [
        causes.invalid(field, "", "needs to be unset")
        for field in _MUST_BE_UNSET
        if stored.get(field)
    ]


def _wrong(event: Json, controller_field: str) -> list[Cause]:
    namespace = event["metadata"].get("namespace", "")
    about = event.get("involvedObject", {}).get("namespace", "")
    mismatch = causes.invalid("involvedObject.namespace", about, "does not match event.namespace")
    if not event.get("eventTime"):
        agree = namespace == (about or "default")
        return [] if agree else [mismatch]
    errors = [] if about or namespace in {"default", "kube-system"} else [mismatch]
    controller = event.get("reportingComponent", "")
    if not controller:
        errors.append(causes.required(controller_field))
    wrong = names.qualified_name(controller)
    errors += causes.invalid_each(controller_field, controller, wrong)
    return errors + _validate_texts(event)


def _validate_texts(event: Json) -> list[Cause]:
    errors = []
    for field, limit in _LIMITS_BYTES.items():
        text = event.get(field, "")
        if not text and field != "message":
            errors.append(causes.required(field))
        if len(text.encode()) > limit:
            errors.append(causes.invalid(field, "", f"can have at most {limit} characters"))
    return errors


KINDS = (
    kind(
        "Event",
        short_names=("ev",),
        selectable=CORE_FIELDS,
        strategy=Strategy(
            name=names.path_segment, default=default, validate=check, create_on_update=True
        ),
    ),
    kind(
        "Event",
        group="events.k8s.io",
        short_names=("ev",),
        selectable=NEW_FIELDS,
        stored_name="events",
        conversion=Renaming(),
        strategy=Strategy(
            shape="events.v1.Event", default=default_new, validate=check_new, create_on_update=True
        ),
    ),
)
