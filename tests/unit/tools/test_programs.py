from __future__ import annotations

from pathlib import Path

import pytest

from tools.kube import programs
from tools.kube.programs import ETCD, KUBE, LOAD, PROGRAMS, Module

GO_MOD = """module example.invalid/x

go 1.24.1

require example.invalid/single v1.2.3

require (
\texample.invalid/kube v0.0.0
\texample.invalid/kubernetes v1.34.4 // indirect
)
"""


def test_reads_a_version_from_go_mod() -> None:
    assert programs.required_version(GO_MOD, "example.invalid/kubernetes") == "v1.34.4"
    assert programs.required_version(GO_MOD, "example.invalid/single") == "v1.2.3"
    assert programs.go_directive(GO_MOD) == (1, 24, 1)


def test_a_missing_requirement_is_reported() -> None:
    with pytest.raises(LookupError, match=r"does not require example\.invalid/other"):
        programs.required_version(GO_MOD, "example.invalid/other")
    with pytest.raises(LookupError, match="no Go version"):
        programs.go_directive("module x\n")


def test_every_server_of_a_control_plane_can_be_built() -> None:
    assert set(programs.CONTROL_PLANE) | {"kubectl", "load", "cluster-api"} == set(PROGRAMS)


def test_kubernetes_binaries_report_the_version_of_go_mod() -> None:
    flags = programs.linker_flags(KUBE)

    _, minor, _ = KUBE.version.removeprefix("v").split(".")
    assert f"-X k8s.io/component-base/version.gitVersion={KUBE.version} " in flags
    assert flags.endswith(f"-X k8s.io/component-base/version.gitMinor={minor}")
    assert programs.linker_flags(ETCD) == "-s -w"


@pytest.mark.parametrize("changed", ["go.mod", "go.sum", "main.go"])
def test_changed_source_changes_the_cache_key(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "SOURCES", tmp_path)
    module = Module("made")
    module.folder.mkdir()
    for name in ("go.mod", "go.sum", "main.go"):
        (module.folder / name).write_text(GO_MOD)
    before = programs.fingerprint(module)

    (module.folder / changed).write_text(GO_MOD + "\n")

    assert programs.fingerprint(module) != before


def test_binaries_are_cached_by_module_version_and_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    folder = programs.path_of("kubectl").parent

    name = f"kube-{KUBE.version}-{programs.fingerprint(KUBE)}"
    assert folder == tmp_path / "bramley" / "kube" / name / "bin"


@pytest.mark.parametrize(
    ("system", "folder"), [("Darwin", "Library/Caches/bramley"), ("Linux", ".cache/bramley")]
)
def test_cache_is_in_the_cache_folder_of_the_platform(
    system: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("platform.system", lambda: system)

    assert programs.user_cache() == Path.home() / folder


def test_the_load_generator_needs_no_other_module() -> None:
    assert "require" not in LOAD.go_mod
