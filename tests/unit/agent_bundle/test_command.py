"""`python -m tools.agent_bundle`: its output as text and as JSON, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.agent_bundle import standalone_builds
from tools.agent_bundle import __main__ as command


def test_result_is_printed_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = standalone_builds.write_build(tmp_path)
    arguments = [str(given.path), "--sha256", given.sha256, "--folder", str(tmp_path), "-o", "json"]

    code = command.main(["interpreter", *arguments])

    (output,) = json.loads(capsys.readouterr().out)
    path = Path(output["path"])
    assert code == 0
    assert path.parent == tmp_path
    assert output["size"] == path.stat().st_size
    assert (
        output["sha256"] == standalone_builds.write_file(tmp_path / "x", path.read_bytes()).sha256
    )
    assert output["kind"] == "interpreter"
    assert output["folder"] == f"/opt/tart-kubelet/python/{output['version']}"


def test_path_hash_and_target_folder_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = standalone_builds.write_build(tmp_path)
    arguments = [str(given.path), "--sha256", given.sha256, "--folder", str(tmp_path)]

    assert command.main(["interpreter", *arguments]) == 0

    output = capsys.readouterr()
    assert "SHA-256" in output.out
    assert "belongs in /opt/tart-kubelet/python/" in output.out
    assert "Packing the interpreter: done" in output.err


def test_error_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = standalone_builds.write_build(tmp_path)
    arguments = [str(given.path), "--sha256", "0" * 64, "--folder", str(tmp_path / "made")]

    assert command.main(["interpreter", *arguments]) == 2

    assert "nothing was unpacked" in capsys.readouterr().err.splitlines()[-1]


def test_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "missing.tar.gz")

    assert command.main(["interpreter", missing, "--sha256", "0" * 64]) == 1

    assert f"No such file or directory ({missing})" in capsys.readouterr().err


def test_invalid_interpreter_archive_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = standalone_builds.write_build(tmp_path)

    assert command.main(["code", "--interpreter", str(given.path)]) == 2

    assert "it is not an archive of the agent" in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])

    output = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(f"agent_bundle {name}" in output for name in ("interpreter", "code", "linux"))
