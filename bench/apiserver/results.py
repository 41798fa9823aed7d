"""The measurements of the benchmark, the ratios of ours to theirs, and the goals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.apiserver.comparison import Footprint, Rates
from bench.report import Report

OURS, THEIRS = "bramley", "kubernetes"
# Our server with its default of controllers; not put under load, because the other server runs without controllers.
WHOLE = "bramley with controllers"
_WHOLE = ", with controllers"


@dataclass(frozen=True, slots=True)
class Goal:
    """A lower or upper bound of a ratio of ours to theirs."""

    ratio: str
    at_least: float | None = None
    at_most: float | None = None

    def met_by(self, value: float) -> bool:
        """Return whether a ratio meets the goal."""
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


GOALS = (
    Goal("PATCH, 64 clients", at_least=3),
    Goal("PATCH, 1 client", at_least=1),
    Goal("GET, 64 clients", at_least=2),
    Goal("RSS idle", at_most=1 / 4),
    Goal("first start", at_most=1 / 5),
    Goal("next start", at_most=1 / 5),
    Goal(f"RSS idle{_WHOLE}", at_most=1 / 4),
    Goal(f"first start{_WHOLE}", at_most=1 / 5),
    Goal(f"next start{_WHOLE}", at_most=1 / 5),
)


@dataclass(frozen=True, slots=True)
class Measurements:
    """All measurements of one run, by server name."""

    rates: Mapping[str, Mapping[str, Rates]]
    footprints: Mapping[str, Footprint]
    loaded_bytes: Mapping[str, int]
    disk_sync_ms: float

    def ratios(self) -> dict[str, float]:
        """Return ours divided by theirs, by title."""
        pairs = {title: (by[OURS].rate, by[THEIRS].rate) for title, by in self.rates.items()}
        for title, costs in self.costs().items():
            pairs[title] = (costs[OURS], costs[THEIRS])
        return {title: round(ours / theirs, 3) for title, (ours, theirs) in pairs.items()}

    def costs(self) -> dict[str, dict[str, float]]:
        """Return memory in MB and seconds, which are better when smaller, by title and server."""
        loaded = {name: size / 1e6 for name, size in self.loaded_bytes.items()}
        bare, whole = self._footprints_of(OURS), self._footprints_of(WHOLE)
        also = {f"{title}{_WHOLE}": costs for title, costs in whole.items()}
        return {**bare, "RSS after load": loaded, **also}

    def _footprints_of(self, name: str) -> dict[str, dict[str, float]]:
        pair = {OURS: self.footprints[name], THEIRS: self.footprints[THEIRS]}.items()
        return {
            "RSS idle": {server: footprint.idle_bytes / 1e6 for server, footprint in pair},
            "first start": {server: footprint.first_start_seconds for server, footprint in pair},
            "next start": {server: footprint.next_start_seconds for server, footprint in pair},
        }

    def report(self) -> Report:
        """Return the report with ratios and goals."""
        ratios = self.ratios()
        return Report(
            bench="apiserver",
            columns=("", "Bramley", "kube-apiserver + etcd", "ratio", "goal", ""),
            rows=list(self.rows()),
            ratios=ratios,
            figures=self.figures(),
            goals={goal.ratio: str(goal) for goal in GOALS},
            met={goal.ratio: goal.met_by(ratios[goal.ratio]) for goal in GOALS},
        )

    def figures(self) -> dict[str, Any]:
        """Return every figure by title and server."""
        figures: dict[str, Any] = {"disk sync ms": round(self.disk_sync_ms, 3)}
        for title, by_server in self.rates.items():
            figures[title] = {name: rates_of(rates) for name, rates in by_server.items()}
        for title, costs in self.costs().items():
            figures[title] = {name: round(cost, 3) for name, cost in costs.items()}
        return figures

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Return the table's rows: what, ours, theirs, ratio, goal, met."""
        ratios, goals = self.ratios(), {goal.ratio: goal for goal in GOALS}
        texts = {
            title: (format_rates(by[OURS]), format_rates(by[THEIRS]))
            for title, by in self.rates.items()
        }
        for title, costs in self.costs().items():
            texts[title] = (format_cost(title, costs[OURS]), format_cost(title, costs[THEIRS]))
        for title, (ours, theirs) in texts.items():
            goal = goals.get(title)
            verdict = "" if goal is None else "met" if goal.met_by(ratios[title]) else "MISSED"
            yield title, ours, theirs, f"{ratios[title]:.2f}", str(goal or ""), verdict


def rates_of(rates: Rates) -> dict[str, Any]:
    """Return one measure as rounded numbers."""
    numbers = {"rate": rates.rate, "p50_ms": rates.p50_ms, "p99_ms": rates.p99_ms}
    rounded = {name: round(value, 2) for name, value in numbers.items()}
    return {**rounded, "protocol": rates.protocol, "restarts": rates.restarts}


def format_rates(rates: Rates) -> str:
    """Return one measure as text."""
    protocol = {"http1": "HTTP/1.1", "http2": "HTTP/2"}[rates.protocol]
    digits = 0 if rates.rate >= 100 else 1
    latencies = f"p50 {rates.p50_ms:.1f} ms, p99 {rates.p99_ms:.1f} ms"
    ended = f", {rates.restarts} watches ended" if rates.restarts else ""
    return f"{rates.rate:,.{digits}f}/s, {latencies} ({protocol}{ended})"


def format_cost(title: str, cost: float) -> str:
    """Return a cost with its unit."""
    return f"{cost:.0f} MB" if title.startswith("RSS") else f"{cost:.2f} s"
