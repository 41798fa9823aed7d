"""How VMs are called: `<namespace>-<pod>-<uid>`, so that a Pod that comes again never meets its predecessor's disk.

Agents before the ledger left the uid out; `of_old` is their name, read for adoption and never given.
"""

from __future__ import annotations

import hashlib

LONGEST = 63
UID_DIGITS = 12
_HASH_DIGITS = 8


def of_pod(namespace: str, pod: str, uid: str) -> str:
    """Return the name of the VM of one Pod, at most 63 characters long."""
    return f"{_shortened(namespace, pod, LONGEST - UID_DIGITS - 1)}-{_uid_digits(uid)}"


def of_old(namespace: str, pod: str) -> str:
    """Return the name that an agent without a ledger gave to the VM of a Pod."""
    return _shortened(namespace, pod, LONGEST)


def _shortened(namespace: str, pod: str, longest: int) -> str:
    name = f"{namespace}-{pod}"
    if len(name) <= longest:
        return name
    told = hashlib.sha256(f"{namespace}/{pod}".encode()).hexdigest()[:_HASH_DIGITS]
    return f"{name[: longest - _HASH_DIGITS - 1]}-{told}"


def _uid_digits(uid: str) -> str:
    """Return the first digits of a UUID; other uids, which only static Pods have, are hashed."""
    digits = uid.replace("-", "").lower()
    is_uuid = len(digits) == 32 and all(digit in "0123456789abcdef" for digit in digits)
    return (digits if is_uuid else hashlib.sha256(uid.encode()).hexdigest())[:UID_DIGITS]
