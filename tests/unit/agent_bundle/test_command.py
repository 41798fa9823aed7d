"""`python -m tools.agent_bundle` says what it made, for people and for programs, and what a person can mend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.agent_bundle import standalone_builds
from tools.agent_bundle import __main__ as command


def test_result_is_printed_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = standalone_builds.give(tmp_path)
    words = [str(given.path), "--sha256", given.sha256, "--folder", str(tmp_path), "-o", "json"]

    code = command.main(["interpreter", *words])

    (output,) = json.loads(capsys.readouterr().out)
    path = Path(output["path"])
    assert code == 0
    assert path.parent == tmp_path
    assert output["size"] == path.stat().st_size
    assert output["sha256"] == standalone_builds.written(tmp_path / "x", path.read_bytes()).sha256
    assert output["kind"] == "interpreter"
    assert output["folder"] == f"/opt/tart-kubelet/python/{output['version']}"


def test_people_get_the_path_the_hash_and_where_it_belongs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = standalone_builds.give(tmp_path)
    words = [str(given.path), "--sha256", given.sha256, "--folder", str(tmp_path)]

    assert command.main(["interpreter", *words]) == 0

    output = capsys.readouterr()
    assert "SHA-256" in output.out
    assert "belongs in /opt/tart-kubelet/python/" in output.out
    assert "Packing the interpreter: done" in output.err


def test_what_is_wrong_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = standalone_builds.give(tmp_path)
    words = [str(given.path), "--sha256", "0" * 64, "--folder", str(tmp_path / "made")]

    assert command.main(["interpreter", *words]) == 2

    assert "nothing was unpacked" in capsys.readouterr().err.splitlines()[-1]


def test_a_file_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing.tar.gz")

    assert command.main(["interpreter", missing, "--sha256", "0" * 64]) == 1

    assert f"No such file or directory ({missing})" in capsys.readouterr().err


def test_code_for_macs_is_refused_for_an_interpreter_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = standalone_builds.give(tmp_path)

    assert command.main(["code", "--interpreter", str(given.path)]) == 2

    assert "it is no archive of the agent" in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])

    output = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(f"agent_bundle {name}" in output for name in ("interpreter", "code", "linux"))
