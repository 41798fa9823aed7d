"""Backups of a running server under load, and what a server restored from them holds."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.process.serving.processes import BRAMLEY, Bramley, clean_environment, running, until
from tests.programs import run_program

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
WRITERS = 6
# A body that a torn page or a mixed-up row would not survive unnoticed.
FILLER = "0123456789abcdef" * 64


def bramley(*arguments: str, code: int = 0) -> str:
    done = run_program([BRAMLEY, *arguments], env=clean_environment())
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


@dataclass
class Writer:
    """Creates numbered objects one after the other; `done` is what the server acknowledged, with the revision."""

    number: int
    server: Bramley
    stop: threading.Event
    done: list[int] = field(default_factory=list)

    def run(self) -> None:
        connection = self.server.connection()
        headers = {"Authorization": f"Bearer {self.server.token}"}
        headers["Content-Type"] = "application/json"
        while not self.stop.is_set():
            body = {"metadata": {"name": self.name(len(self.done))}, "data": {"filler": FILLER}}
            connection.request("POST", CONFIG_MAPS, json.dumps(body), headers)
            answer = connection.getresponse()
            made = json.loads(answer.read())
            assert answer.status == 201, made
            self.done.append(int(made["metadata"]["resourceVersion"]))
        connection.close()

    def name(self, number: int) -> str:
        return f"w{self.number}-{number:06}"


@contextmanager
def writing(server: Bramley) -> Iterator[list[Writer]]:
    stop = threading.Event()
    writers = [Writer(number, server, stop) for number in range(WRITERS)]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        until(lambda: all(len(writer.done) > 20 for writer in writers))
        yield writers
    finally:
        stop.set()
        for thread in threads:
            thread.join(180)


def stored(server: Bramley) -> dict[str, Any]:
    code, listed = server.request("GET", CONFIG_MAPS)
    assert code == 200
    return {item["metadata"]["name"]: item for item in listed["items"]}


def account_token(server: Bramley) -> str:
    until(lambda: server.request("GET", f"{ACCOUNTS}/default")[0] == 200)
    code, made = server.request("POST", f"{ACCOUNTS}/default/token", {"spec": {}})
    assert code == 201, made
    return str(made["status"]["token"])


def user_of(server: Bramley, token: str) -> str:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    code, answer = server.request("POST", path, {}, token=token)
    assert code == 201, answer
    return str(answer["status"]["userInfo"]["username"])


def back_up(server: Bramley, file: Path) -> Any:
    place = ("--kubeconfig", str(server.kubeconfig), "--out", str(file))
    return json.loads(bramley("apiserver", "backup", *place, "-o", "json"))


def check_kept(writer: Writer, kept: dict[str, Any], *, revision: int) -> int:
    """Check that a writer's objects are exactly those up to the backup's revision, and return their number."""
    mine = sorted(name for name in kept if name.startswith(f"w{writer.number}-"))
    assert mine == [writer.name(number) for number in range(len(mine))]
    assert len(mine) == sum(rv <= revision for rv in writer.done)
    return len(mine)


def check_cannot_resume(server: Bramley, *, since: int) -> None:
    path = f"{CONFIG_MAPS}?watch=true&timeoutSeconds=1&resourceVersion={since}"
    code, answer = server.request("GET", path)
    assert (answer["object"] if code == 200 else answer)["code"] == 410


def test_backup_under_load_restores_to_exactly_what_was_durable_at_one_moment(
    tmp_path: Path,
) -> None:
    file = tmp_path / "bramley.backup"
    with running(tmp_path / "one") as server:
        token = account_token(server)
        with writing(server) as writers:
            before = [len(writer.done) for writer in writers]
            backup = back_up(server, file)
            after = [len(writer.done) for writer in writers]
            until(lambda: all(len(w.done) > n for w, n in zip(writers, after, strict=True)))
        last = max(writer.done[-1] for writer in writers)
        # The writers continued during the backup; a long block would have exceeded their deadlines.
        assert sum(after) > sum(before) + WRITERS
    assert file.stat().st_mode & 0o777 == 0o600

    bramley("apiserver", "restore", "--data-dir", str(tmp_path / "two/data"), "--from", str(file))
    shutil.copy(tmp_path / "one/kubeconfig", tmp_path / "two/kubeconfig")
    with running(tmp_path / "two") as restored:
        kept = stored(restored)
        for writer, least, most in zip(writers, before, after, strict=True):
            found = check_kept(writer, kept, revision=backup["revision"])
            assert least <= found <= most + 1
        assert all(
            item["data"] == {"filler": FILLER}
            for item in kept.values()
            if "-0" in item["metadata"]["name"]
        )
        # Existing tokens are still valid, with the same certificate authority.
        assert restored.token == server.token
        assert user_of(restored, token) == "system:serviceaccount:default:default"
        for seen in (backup["revision"], last):
            check_cannot_resume(restored, since=seen)
        made = restored.request("POST", CONFIG_MAPS, {"metadata": {"name": "next"}})[1]
        assert int(made["metadata"]["resourceVersion"]) > last
        assert all(int(item["metadata"]["resourceVersion"]) > last for item in kept.values())


def test_backup_of_a_stopped_folder_and_restoring_it_twice(tmp_path: Path) -> None:
    file, target = tmp_path / "bramley.backup", str(tmp_path / "two/data")
    with running(tmp_path / "one") as server:
        server.request("POST", CONFIG_MAPS, {"metadata": {"name": "kept"}})
        refused = bramley(
            "apiserver", "backup", "--data-dir", str(server.folder), "--out", str(file), code=2
        )
        assert "--kubeconfig" in refused
        server.stop()
    bramley("apiserver", "backup", "--data-dir", str(server.folder), "--out", str(file))

    bramley("apiserver", "restore", "--data-dir", target, "--from", str(file))
    with running(tmp_path / "two") as restored:
        made = restored.request("POST", CONFIG_MAPS, {"metadata": {"name": "later"}})[1]
        first = int(made["metadata"]["resourceVersion"])
        running_on = bramley(
            "apiserver", "restore", "--data-dir", target, "--from", str(file), code=2
        )
        assert "stop the server first" in running_on
        restored.stop()
    assert "--force" in bramley(
        "apiserver", "restore", "--data-dir", target, "--from", str(file), code=2
    )
    backup = json.loads(
        bramley(
            *("apiserver", "restore", "--data-dir", target, "--from", str(file)),
            *("--force", "-o", "json"),
        )
    )

    assert backup["servedFrom"] > first
    assert (Path(backup["before"]) / "bramley.db").exists()
    with running(tmp_path / "two") as restored:
        assert "kept" in stored(restored)
        assert "later" not in stored(restored)


def test_only_masters_may_take_a_backup(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        binding = {
            "metadata": {"name": "everything"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        }
        path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        assert server.request("POST", path, binding)[0] == 201
        token = account_token(server)
        assert server.request("GET", CONFIG_MAPS, token=token)[0] == 200

        code, answer = server.request("GET", "/bramley/v1/backup", token=token)

        assert (code, answer["reason"]) == (403, "Forbidden")
        assert server.request("GET", "/bramley/v1/backup", token="wrong")[0] == 401
        assert server.request("POST", "/bramley/v1/backup")[0] == 405
