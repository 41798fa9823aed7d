"""Who the embedded API is to agents: the owner of a client certificate of its own authority, made in memory.

A certificate and no token, because a certificate gives nothing away to whoever answers in an agent's place. It lives for a
day, is made anew in time, and its owner may do nothing but speak to agents.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from bramley.apiserver.auth.bootstrap import KUBELET_CLIENT
from bramley.apiserver.pki.tls import Identity
from bramley.base.clock import Clock
from bramley.kube.credentials import Credential
from bramley.kube.tls import ClientCertificate

LIFETIME = timedelta(days=1)

Issue = Callable[[str, timedelta], Identity]


class NodeIdentity:
    """The credential of the moment; `issue` makes a certificate for a name."""

    def __init__(self, issue: Issue, clock: Clock) -> None:
        self._issue = issue
        self._clock = clock
        self._held: Credential | None = None
        self._due: datetime | None = None

    async def current(self) -> Credential:
        """Return the certificate, made anew when half its life is over."""
        now = self._clock.now()
        if self._held is None or self._due is None or now >= self._due:
            made = self._issue(KUBELET_CLIENT, LIFETIME)
            shown = ClientCertificate(made.certificate.decode(), made.key)
            self._held, self._due = Credential(certificate=shown), now + LIFETIME / 2
        return self._held

    async def refused(self, credential: Credential) -> bool:
        """Know no other: an agent that refuses us does not know our authority, and never will."""
        return credential != self._held
