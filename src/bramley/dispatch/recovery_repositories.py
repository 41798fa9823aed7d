"""The repositories that had jobs lately, and when each was last searched for jobs whose webhooks were all lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bramley.dispatch.store.records import Job, JobFilter
from bramley.dispatch.store.store import Store

ACTIVE = timedelta(days=1)
SEARCH_INTERVAL = timedelta(minutes=5)
_PAGE = 500
_MAX_PAGES = 40


@dataclass(slots=True)
class ActiveRepositories:
    """The repositories with a job of the last day."""

    _active_at: dict[str, datetime] = field(default_factory=dict)
    _searched_at: dict[str, datetime] = field(default_factory=dict)
    _newest_id: int = 0

    async def refresh(self, store: Store, now: datetime) -> None:
        """Read the jobs that are new since the last call, and forget repositories without recent ones."""
        selection, known_id = JobFilter(limit=_PAGE), self._newest_id
        for _ in range(_MAX_PAGES):
            page = await store.jobs(selection)
            for job in page:
                self._add(job)
            # Ids grow with time, so the pages after this one have no newer jobs.
            if not page or page[-1].id <= known_id or _seen_at(page[-1]) < now - ACTIVE:
                break
            selection = JobFilter(before_id=page[-1].id, limit=_PAGE)
        for repository in [each for each, at in self._active_at.items() if at < now - ACTIVE]:
            del self._active_at[repository]
            self._searched_at.pop(repository, None)

    def _add(self, job: Job) -> None:
        self._newest_id = max(self._newest_id, job.id)
        if repository := job.facts.repository:
            seen_at = _seen_at(job)
            self._active_at[repository] = max(self._active_at.get(repository, seen_at), seen_at)

    def due(self, now: datetime) -> Sequence[str]:
        """Return the repositories to search now: those never searched, then the longest not searched."""
        waiting = [each for each in self._active_at if each not in self._searched_at]
        searched = [each for each, at in self._searched_at.items() if at <= now - SEARCH_INTERVAL]
        return waiting + sorted(searched, key=self._searched_at.__getitem__)

    def mark(self, repository: str, now: datetime) -> None:
        """Record that a repository is searched."""
        self._searched_at[repository] = now


def _seen_at(job: Job) -> datetime:
    return job.facts.queued_at or job.updated_at
