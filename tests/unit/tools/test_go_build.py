from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from tools.kube import go_build, programs
from tools.kube.go_build import BuildFailed
from tools.kube.progress import Progress

FAKE_GO = """#!/bin/sh
case "$1 $2" in
    "env GOVERSION") echo {version} ;;
    "env GOTOOLCHAIN") echo {toolchain} ;;
    "build "*)
        echo "$CGO_ENABLED $GOFLAGS $PWD $*" >> {calls}
        while [ "$1" != -o ]; do shift; done
        {build} ;;
esac
"""


class FakeGo:
    """A Go that writes down how it was called and builds empty programs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.calls.touch()
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        self.install()

    def install(
        self, version: str = "go9.9.9", toolchain: str = "auto", build: str = 'echo built > "$2"'
    ) -> None:
        text = FAKE_GO.format(version=version, toolchain=toolchain, calls=self.calls, build=build)
        (self.folder / "go").write_text(text)
        (self.folder / "go").chmod(0o755)


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    return FakeGo(tmp_path, monkeypatch)


def silent() -> Progress:
    return Progress(write=lambda _line: None, terminal=False)


def test_build_runs_once_with_the_module_flags(go: FakeGo) -> None:
    go_build.ensure(["etcd"], silent())
    go_build.ensure(["etcd"], silent())

    assert programs.path_of("etcd").read_text() == "built\n"
    (call,) = go.calls.read_text().splitlines()
    assert call.startswith("0 -mod=readonly -buildvcs=false ")
    assert f"{programs.ETCD.folder} build -trimpath -ldflags -s -w -o " in call


def test_a_failed_build_is_reported_and_leaves_nothing_behind(go: FakeGo) -> None:
    go.install(build='echo half > "$2"; echo "undefined: x"; exit 2')

    with pytest.raises(BuildFailed, match="go build of etcd failed") as raised:
        go_build.ensure(["etcd"], silent())

    assert "undefined: x" in str(raised.value)
    assert list(programs.path_of("etcd").parent.iterdir()) == []


def test_builders_at_the_same_time_build_once(go: FakeGo) -> None:
    go.install(build='sleep 0.2; echo built > "$2"')
    threads = [
        threading.Thread(target=go_build.ensure, args=(["etcd"], silent())) for _ in range(3)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert len(go.calls.read_text().splitlines()) == 1


def test_go_that_may_not_fetch_a_newer_toolchain_is_too_old(go: FakeGo) -> None:
    go.install(version="go1.22.1", toolchain="local")

    assert go_build.missing(["etcd"]).startswith(f"Go 1.22.1 at {go.folder / 'go'} is older than ")
    with pytest.raises(BuildFailed, match="install it: "):
        go_build.ensure(["etcd"], silent())


def test_go_that_may_fetch_a_newer_toolchain_is_accepted(go: FakeGo) -> None:
    go.install(version="go1.22.1", toolchain="auto")

    assert go_build.missing(["etcd"]) == ""


def test_go_without_toolchains_is_too_old(go: FakeGo) -> None:
    go.install(version="go1.19", toolchain="")

    assert "is older than" in go_build.missing(["etcd"])


def test_nothing_is_missing_once_all_is_built(go: FakeGo) -> None:
    go_build.ensure(["etcd"], silent())
    (go.folder / "go").unlink()

    assert go_build.missing(["etcd"]) == ""


def test_error_without_go_has_the_install_command(
    go: FakeGo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(go_build, "find_go", lambda: None)

    hint = go_build.missing(["etcd"])

    assert hint.startswith("Go ≥ 1.")
    assert "install it: " in hint


def test_built_programs_can_be_run(go: FakeGo) -> None:
    go.install(build='echo built > "$2"; chmod 755 "$2"')
    go_build.ensure(["load"], silent())

    assert programs.path_of("load").stat().st_mode & stat.S_IXUSR


def test_progress_has_program_and_duration(go: FakeGo) -> None:
    lines: list[str] = []

    go_build.ensure(["etcd", "load"], Progress(write=lines.append, terminal=False))

    assert lines[0] == "[1/2] building etcd …"
    assert lines[1].startswith("[1/2] building etcd: done in ")
    assert lines[2] == "[2/2] building load …"
