"""What the controllers share: patches of exactly one object, owners that select an object, and safe informer handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bramley.api.label_selectors import matches
from bramley.api.meta import K, Object
from bramley.base import log
from bramley.base.errors import Captured
from bramley.runtime.cache import Cache, Handler
from bramley.runtime.client import Kube
from bramley.runtime.keys import Key, key_of
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)


async def patch_object(
    kube: Kube | FencedKube,
    item: K,
    patch: Mapping[str, Any],
    *,
    subresource: str | None = None,
    only: Literal["uid", "version", "both"] = "both",
) -> K:
    """Merge a patch into an object; `only` says whether it must have the same uid, be unchanged, or both."""
    meta = item.metadata
    return await kube.merge_patch(
        type(item),
        meta.name,
        patch,
        namespace=meta.namespace,
        subresource=subresource,
        resource_version=None if only == "uid" else meta.resource_version,
        uid=None if only == "version" else meta.uid,
    )


def keys_selecting(owners: Cache[Any], item: Object) -> list[Key]:
    """Return the keys of the owners in an object's namespace whose selector matches its labels."""
    in_scope = owners.all(namespace=item.namespace)
    return [key_of(each) for each in in_scope if matches(each.spec.selector, item.metadata.labels)]


def log_errors(handler: Handler[K]) -> Handler[K]:
    """Return a handler that logs what the given one raises, so that the informer continues with the next change."""

    def changed(key: Key, old: K | None, new: K | None) -> None:
        with Captured() as caught:
            handler(key, old, new)
        if caught.error is not None:
            kind = type(new or old).__name__
            logger.error("Informer handler failed", exc=caught.error, kind=kind, object=str(key))

    return changed
