"""What is asked of the images of this host, and the answers: ready, on its way, or failed for now.

An answer never waits. Who asked is told by its callback when the answer may have changed, and asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from bramley.agent.tart import references
from bramley.api.core import Pod
from bramley.base import errors

OnChange = Callable[[], None]


class PullPolicy(StrEnum):
    """When the registry is asked although the image is here."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """One wish for an image; `owner` is who asks, a Pod's uid, and gets one fresh look at a tag under policy Always."""

    image: str
    owner: str
    policy: PullPolicy = PullPolicy.IF_NOT_PRESENT
    namespace: str = ""
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """The golden base is on disk; `is_warm` unless its owner had to wait for it."""

    golden: str
    digest: str
    is_warm: bool


@dataclass(frozen=True, slots=True)
class Pulling:
    """It is on its way; no percent is known while the manifest is read, in a queue, or while the base is made."""

    percent: int | None
    since: datetime


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not be had; asking again after `retry_after` tries once more, asking earlier gives this answer again."""

    error: errors.BramleyError
    retry_after: timedelta


Answer = Ready | Pulling | Failed


def request_of(pod: Pod) -> ImageRequest:
    """Return the wish of a Pod with one container."""
    container = pod.spec.containers[0]
    return ImageRequest(
        image=container.image,
        owner=pod.metadata.uid,
        policy=policy_of(container.image, container.image_pull_policy),
        namespace=pod.metadata.namespace or "",
        pull_secrets=tuple(secret.name for secret in pod.spec.image_pull_secrets if secret.name),
    )


def policy_of(image: str, given: str) -> PullPolicy:
    """Return the pull policy; where none is given, Kubernetes looks at `latest` always and at other tags once."""
    if given in set(PullPolicy):
        return PullPolicy(given)
    reference = references.parse(image)
    is_latest = reference and not reference.digest and reference.tag == references.DEFAULT_TAG
    return PullPolicy.ALWAYS if is_latest else PullPolicy.IF_NOT_PRESENT
