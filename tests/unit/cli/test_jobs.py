"""The commands about jobs against a dispatch server on a loopback socket."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bramley.base.errors import BadConfiguration
from bramley.cli import job_options, job_output, jobs, main
from bramley.dispatch import job_views
from bramley.dispatch.job_views import JobView
from bramley.dispatch.jobs import State
from tests.unit.cli.dispatch_peer import TOKEN, Peer, a_peer
from tests.unit.dispatch.job_builders import a_claim, a_job, a_timeline, an_execution, at

Captured = pytest.CaptureFixture[str]
JOBS = "/api/v1/jobs"
DONE = job_views.timeline_view(
    a_timeline(a_job(State.COMPLETED), a_claim(), execution=an_execution())
)
HOSTILE = "a\x1b[31m[red]b\u202ec\x9b"


@pytest.fixture
def peer() -> Iterator[Peer]:
    with a_peer() as served:
        yield served


def run(peer: Peer, folder: Path, *arguments: str, server: bool = True) -> int:
    where = ["--server", peer.url] if server else []
    return main.run([*arguments, "--kubeconfig", str(peer.kubeconfig(folder)), *where])


def as_json(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_list_prints_aligned_lines_where_there_is_no_terminal(
    peer: Peer, tmp_path: Path, capsys: Captured
) -> None:
    line = f"GET {JOBS}?state=queued&state=running&pool=macos&account=acme&before=9&limit=7"
    peer.answer(line, {"jobs": [as_json(DONE)]})
    options = ["--state", "queued", "--state", "running", "--pool", "macos", "--account", "acme"]

    assert run(peer, tmp_path, "jobs", "list", *options, "--before", "9", "--limit", "7") == 0

    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == list(job_output.COLUMNS)
    assert row.split()[:9] == ["7", "success", "acme/app", "build", "-", "macos", "mac-1", "5", "s"]
    assert header.index("HOST") == row.index("mac-1")
    assert peer.received[0].header("authorization") == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("width", "omitted"),
    [("120", set()), ("80", {"BRANCH"}), ("60", {"BRANCH", "POOL", "HOST", "REPOSITORY"})],
)
def test_a_narrow_terminal_cuts_texts_and_omits_columns_but_no_state_and_no_time(
    peer: Peer,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    *,
    width: str,
    omitted: set[str],
) -> None:
    long = {"id": 31415926535, "name": "n" * 40, "branch": "b" * 40, "repository": "acme/app"}
    peer.answer(f"GET {JOBS}?limit=50", {"jobs": [as_json(DONE) | long]})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", width)

    assert run(peer, tmp_path, "jobs", "list") == 0

    header, row = capsys.readouterr().out.splitlines()
    assert set(job_output.COLUMNS) - set(header.split()) == omitted
    assert re.match(r"31415926535  success  (acme/app +)?nnnn", row)
    assert re.search(r"  5 s +4 s +\d+ d$", row.rstrip())
    assert len(row) <= int(width)


def test_an_empty_list_and_a_job_without_a_pool_say_what_to_do(
    peer: Peer, tmp_path: Path, capsys: Captured
) -> None:
    unmatched = job_views.job_view(a_job(pool=""))
    peer.answer(f"GET {JOBS}?limit=50", {"jobs": []})
    peer.answer(f"GET {JOBS}?limit=50", {"jobs": [as_json(unmatched)]})

    assert run(peer, tmp_path, "jobs", "list") == 0
    assert "No jobs." in capsys.readouterr().out
    assert run(peer, tmp_path, "jobs", "list") == 0
    assert "bramley explain job/ID" in capsys.readouterr().out


def test_the_url_is_read_from_the_config_map(peer: Peer, tmp_path: Path, capsys: Captured) -> None:
    peer.publish(url=f"{peer.url}/")
    peer.answer(f"GET {JOBS}/7", as_json(DONE))

    assert run(peer, tmp_path, "jobs", "show", "job/7", server=False) == 0

    assert "State       completed (success)" in capsys.readouterr().out


def test_show_has_every_stage_with_its_offset(peer: Peer, tmp_path: Path, capsys: Captured) -> None:
    peer.answer(f"GET {JOBS}/7", as_json(DONE))

    assert run(peer, tmp_path, "jobs", "show", "7") == 0

    out = capsys.readouterr().out
    assert "Pod         macos-runner-1 on mac-1" in out
    assert "  JIT handed out  2026-01-01 12:00:03  +3.00 s" in out
    assert "  macos-runner-1 on mac-1 since 12:00:01" in out


@pytest.mark.parametrize("verb", ["cancel", "requeue"])
def test_a_change_prints_the_new_state(
    peer: Peer, tmp_path: Path, capsys: Captured, verb: str
) -> None:
    peer.answer(f"POST {JOBS}/7/{verb}", {"id": 7, "state": "queued"})

    assert run(peer, tmp_path, "jobs", verb, "7") == 0

    assert capsys.readouterr().out == "job/7: queued\n"


def test_explain_prints_the_reason_and_the_facts(
    peer: Peer, tmp_path: Path, capsys: Captured
) -> None:
    explanation = {"job_id": 7, "state": "queued", "reason": "NoIdleRunner", "message": "none."}
    peer.answer(f"GET {JOBS}/7/explanation", {**explanation, "details": {"pool": "macos", "n": 1}})

    assert run(peer, tmp_path, "explain", "job/7") == 0

    expected = "job/7: queued (NoIdleRunner)\n  none.\nDetails:\n  pool  macos\n  n     1\n"
    assert capsys.readouterr().out == expected


def test_a_log_keeps_its_lines_and_no_control_characters(
    peer: Peer, tmp_path: Path, capsys: Captured
) -> None:
    peer.answer(f"GET {JOBS}/7/log", b"one\n\ttwo \x1b[2J\n")

    assert run(peer, tmp_path, "jobs", "logs", "7") == 0

    assert capsys.readouterr().out == "one\n\ttwo \ufffd[2J\n"


def test_a_job_without_a_log_is_an_error_that_says_so(
    peer: Peer, tmp_path: Path, capsys: Captured
) -> None:
    peer.answer(f"GET {JOBS}/7/log", {"error": "no log is kept for job 7"}, "404 Not Found")

    assert run(peer, tmp_path, "jobs", "logs", "7") == 2

    assert capsys.readouterr().err == "bramley: no log is kept for job 7\n"


def test_an_export_is_written_as_it_is(
    peer: Peer, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    line = f"GET {JOBS}/export?format=json&since=2026-01-01T00:00:00Z"
    peer.answer(line, b'{"id":7}\n')
    options = ["--format", "json", "--since", "2026-01-01T00:00:00Z"]

    code = run(peer, tmp_path, "jobs", "export", *options)

    assert (code, capfdbinary.readouterr().out) == (0, b'{"id":7}\n')


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("401 Unauthorized", 2, "no; use the kubeconfig of a user with this permission"),
        ("403 Forbidden", 2, "no; use the kubeconfig of a user with this permission"),
        ("404 Not Found", 2, "no; bramley jobs list shows the known jobs"),
        ("409 Conflict", 1, "bramley: no\n"),
        ("400 Bad Request", 2, "status 400: no"),
        ("503 Service Unavailable", 1, "status 503: no; try again"),
        ("307 Temporary Redirect", 2, "pass the final address with --server"),
    ],
)
def test_a_refusal_says_why_and_what_to_do(
    peer: Peer, tmp_path: Path, capsys: Captured, *, status: str, code: int, expected: str
) -> None:
    peer.answer(f"POST {JOBS}/7/cancel", {"error": "no"}, status)

    assert run(peer, tmp_path, "jobs", "cancel", "7") == code
    assert expected in capsys.readouterr().err


def test_no_error_shows_the_token(peer: Peer, tmp_path: Path, capsys: Captured) -> None:
    peer.answer(f"GET {JOBS}/7", {"error": f"bad {TOKEN} \x1b[2J"}, "403 Forbidden")

    run(peer, tmp_path, "jobs", "show", "7")

    err = capsys.readouterr().err
    assert TOKEN not in err
    assert "\x1b" not in err


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b'{"id": "x"}'])
def test_a_server_of_another_kind_is_an_error(
    peer: Peer, tmp_path: Path, capsys: Captured, body: bytes
) -> None:
    peer.answer(f"GET {JOBS}/7", body)

    assert run(peer, tmp_path, "jobs", "show", "7") == 1
    assert "invalid response" in capsys.readouterr().err


def test_a_closed_port_is_an_error_without_a_traceback(
    peer: Peer, tmp_path: Path, capsys: Captured
) -> None:
    kubeconfig = str(peer.kubeconfig(tmp_path))
    code = main.run(["jobs", "list", "--kubeconfig", kubeconfig, "--server", "http://127.0.0.1:9"])

    assert code == 1
    assert "GET http://127.0.0.1:9/api/v1/jobs: " in capsys.readouterr().err


def test_a_kubeconfig_without_a_token_is_refused_with_advice(
    peer: Peer, tmp_path: Path, capsys: Captured
) -> None:
    file = peer.kubeconfig(tmp_path, user="username: u, password: canary")

    assert main.run(["jobs", "list", "--kubeconfig", str(file), "--server", peer.url]) == 2

    err = capsys.readouterr().err
    assert "kubectl create token" in err
    assert "canary" not in err
    assert peer.received == []


def test_a_namespace_without_a_dispatch_server_is_refused_with_advice(
    peer: Peer, tmp_path: Path, capsys: Captured
) -> None:
    assert run(peer, tmp_path, "jobs", "list", server=False) == 2
    assert "pass its URL with --server, or its namespace with -n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("http://dispatch.example.com", "--insecure-http"),
        ("http://10.0.0.1:8080", "--insecure-http"),
        ("https://user:canary@dispatch.example.com", "neither a user nor a query"),
        ("https://dispatch.example.com?a=canary", "neither a user nor a query"),
        ("dispatch.example.com", "write it as https://HOST"),
        ("ftp://dispatch.example.com", "write it as https://HOST"),
    ],
)
def test_the_token_is_not_sent_to_an_unsafe_url(
    peer: Peer, tmp_path: Path, capsys: Captured, url: str, part: str
) -> None:
    kubeconfig = str(peer.kubeconfig(tmp_path))

    assert main.run(["jobs", "list", "--kubeconfig", kubeconfig, "--server", url]) == 2

    err = capsys.readouterr().err
    assert part in err
    assert "canary" not in err


def test_texts_of_others_are_neither_markup_nor_control_sequences(
    peer: Peer, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = {**as_json(DONE), "name": HOSTILE, "branch": HOSTILE, "labels": [HOSTILE]}
    peer.answer(f"GET {JOBS}/7", hostile)
    peer.answer(f"GET {JOBS}?limit=50", {"jobs": [hostile]})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")

    for command in (["list"], ["show", "7"], ["list", "-o", "json"], ["show", "7", "-o", "json"]):
        assert run(peer, tmp_path, "jobs", *command) == 0
        out = capsys.readouterr().out
        assert not {"\x1b", "\u202e", "\x9b"} & set(out)
        assert "[red]" in out
    assert json.loads(out)["name"] == HOSTILE


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "pool/7", "7/8", "٣", str(2**63), "9" * 30])
def test_only_ids_are_jobs(text: str) -> None:
    with pytest.raises(BadConfiguration, match="GitHub's job id"):
        job_options.job_id(text)


NOW = datetime(2026, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", NOW - timedelta(days=7)),
        ("2026-01-01T12:00:00Z", at(0)),
        ("2026-01-01T13:00:00+01:00", at(0)),
    ],
)
def test_since_is_a_duration_or_a_time(text: str, expected: datetime) -> None:
    assert jobs.moment(text, now=NOW) == expected


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("2026-01-01T12:00:00", "write it like 2026-01-31T12:00:00Z"),
        ("2026-01-01", "write it like 2026-01-31T12:00:00Z"),
        ("yesterday", "write it like 30s"),
    ],
)
def test_another_since_is_refused_with_advice(text: str, advice: str) -> None:
    with pytest.raises(BadConfiguration, match=f"--since.*{advice}"):
        jobs.moment(text, now=NOW)


def test_a_waiting_job_has_waited_until_now_and_a_long_name_is_cut() -> None:
    job = JobView(id=7, state="queued", name="n" * 100, queued_at=at(0))

    cells = job_output.row(job, now=at(60))

    assert cells[3] == "n" * 39 + "…"
    assert cells[7:] == ("60 s", "-", "60 s")
