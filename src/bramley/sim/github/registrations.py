"""Registrations of runners that run many jobs, with the tokens that `config.sh` uses."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bramley.base.clock import Clock
from bramley.sim.github.actions import Actions
from bramley.sim.github.records import Refusal, Runner

TOKEN_LIFETIME = timedelta(hours=1)
# Of every runner, unless its registration excludes them.
_DEFAULT_LABELS = ("self-hosted", "macOS", "ARM64")
_DEFAULT_GROUP = 1


@dataclass(slots=True, eq=False)
class Registrations:
    """The registration tokens that are valid, and the registrations with them."""

    actions: Actions
    clock: Clock
    rng: random.Random
    _tokens: dict[str, tuple[str, datetime]] = field(default_factory=dict)

    def create_token(self, owner: str) -> tuple[str, datetime]:
        """Return a new token for the runners of an owner, and when it expires."""
        token = f"A{self.rng.getrandbits(110):028X}"
        self._tokens[token] = owner, self.clock.now() + TOKEN_LIFETIME
        return token, self._tokens[token][1]

    def register(self, token: str, owner: str, name: str, labels: Iterable[str]) -> Runner:
        """Register a runner in place of one of its name; a Refusal if the token is not valid."""
        found, expires_at = self._tokens.get(token, ("", self.clock.now()))
        if found.lower() != owner.lower() or expires_at <= self.clock.now():
            raise Refusal(404, "Not Found")
        for runner in list(self.actions.runners.values()):
            if (runner.owner, runner.name) == (found, name):
                self.actions.remove(runner)
        chosen = dict.fromkeys((*_DEFAULT_LABELS, *labels))
        return self.actions.register(found, name, chosen, _DEFAULT_GROUP, is_ephemeral=False)
