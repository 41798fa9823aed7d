"""The names of VMs: `<namespace>-<pod>-<uid>`, so that a recreated Pod never gets the disk of its predecessor.

Agents before the ledger omitted the uid; `legacy_of_pod` returns such a name, for adoption only.
"""

from __future__ import annotations

import hashlib

MAX_LENGTH = 63
UID_DIGITS = 12
_HASH_DIGITS = 8


def of_pod(namespace: str, pod: str, uid: str) -> str:
    """Return the name of the VM of one Pod, at most 63 characters long."""
    return f"{_shortened(namespace, pod, MAX_LENGTH - UID_DIGITS - 1)}-{_uid_digits(uid)}"


def legacy_of_pod(namespace: str, pod: str) -> str:
    """Return the name that an agent without a ledger used for the VM of a Pod."""
    return _shortened(namespace, pod, MAX_LENGTH)


def _shortened(namespace: str, pod: str, max_length: int) -> str:
    name = f"{namespace}-{pod}"
    if len(name) <= max_length:
        return name
    digest = hashlib.sha256(f"{namespace}/{pod}".encode()).hexdigest()[:_HASH_DIGITS]
    return f"{name[: max_length - _HASH_DIGITS - 1]}-{digest}"


def _uid_digits(uid: str) -> str:
    """Return the first digits of a UUID; other uids, which only static Pods have, are hashed."""
    digits = uid.replace("-", "").lower()
    is_uuid = len(digits) == 32 and all(digit in "0123456789abcdef" for digit in digits)
    return (digits if is_uuid else hashlib.sha256(uid.encode()).hexdigest())[:UID_DIGITS]
