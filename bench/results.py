"""The results page of `make bench`: ratios and goals with date and versions; no absolute times, which depend on the machine."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path

from bench.report import Report
from tools.kube.programs import PROGRAMS

LOCK = Path(__file__).parents[1] / "requirements" / "bench.txt"
OURS = ("bramley", "msgspec", "aiohttp", "uvicorn", "asyncssh")
ALTERNATIVES = ("kopf", "lightkube")
SERVERS = ("kube-apiserver", "etcd")
# Explanation of the numbers in each table.
EXPLANATIONS: Mapping[str, str] = {
    "agent": "Absolute figures of one `tart-kubelet` on a simulated Mac, and its size beside that of the Go agent. Less is better.",
    "apiserver": "Ours divided by kube-apiserver on etcd, under the same load. More is better for requests and watches, less for "
    "memory (RSS) and the time of a start.",
    "dispatch": "One `bramley dispatch` with long polls, divided by the same server with polls every 2 seconds, as existing pollers send "
    "them; the server that it replaces is not run. Jobs go to a pool with nearly all idle VMs, where one of them polls every few "
    "milliseconds whatever the mode, and to pools with one idle VM; where all are in one pool, no factor can be gained, so that line has no goal. Claims of one pool are serialized for fairness and none ends during "
    "the measurement; the bare loop only changes one row. More is better for ratios, less for times, memory and CPU.",
    "machines": "The machine controller: with many machines at rest, where nothing else uses the API server, and in a roll of a whole fleet over "
    "SSH, all hosts at once after the first one. The same roll of a few hosts with a copy of the artifacts per call, as the existing provider "
    "had it, is for comparison. Less is better.",
    "pools": "The pool controller: the rate at which it creates Pods and its memory, divided by those of the Go controller that it "
    "replaces, and absolute figures of its writes. More is better for rates, less for everything else.",
    "roll": "A roll of a 40 GB image over 200 modelled Macs behind one uplink of 1 Gbit/s, with live jobs, under virtual time: by the "
    "staged roll of the pool controller, and by models of the time-staggered drain and of the capped roll that it replaces.",
    "runtime": "Our rates divided by those of others under the same load, so more is better: controllers in kopf, watches in "
    "lightkube, and the limit, a loop that decodes events and does nothing else. Memory is absolute.",
    "streaming": "Memory of a manager that brings artifacts to many hosts at once, where less is better, and its speed divided by scp's.",
}


def versions() -> dict[str, str]:
    """Return the versions of all measured programs and libraries."""
    lock = LOCK.read_text()
    versions_found = {"python": platform.python_version()}
    versions_found |= {name: metadata.version(name) for name in OURS}
    versions_found |= {name: pinned(lock, name) for name in ALTERNATIVES}
    return versions_found | {name: PROGRAMS[name].module.version for name in SERVERS}


def pinned(lock: str, name: str) -> str:
    """Return the version that a lock file pins."""
    match = re.search(rf"^{name}==(\S+)", lock, re.MULTILINE)
    if match is None:
        raise LookupError(f"{LOCK.name} does not pin {name}")
    return match[1]


def document(reports: Sequence[Report], day: date, used: Mapping[str, str]) -> str:
    """Return the page."""
    used_versions = ", ".join(f"{name} {version}" for name, version in used.items())
    lines = ["# Results of the last `make bench`", "", f"{day:%Y-%m-%d}; {used_versions}.", ""]
    for report in reports:
        lines += [f"## {report.bench}", "", EXPLANATIONS[report.bench], "", *ratios(report), ""]
    return "\n".join(lines).rstrip() + "\n"


def ratios(report: Report) -> Iterator[str]:
    """Return the table of one benchmark's ratios, with goal and verdict where there is one."""
    yield "| what | found | goal | |"
    yield "|---|---|---|---|"
    for name, ratio in report.ratios.items():
        verdict = {True: "met", False: "missed", None: ""}[report.met.get(name)]
        yield f"| {name} | {ratio:.2f} | {report.goals.get(name, '')} | {verdict} |"
