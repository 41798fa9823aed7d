"""Exit codes, texts and JSON (rows 5 and 6)."""

from __future__ import annotations

import json
from typing import Any

from tests.contract.tart.targets import IMAGE, SMALL, VIRTUAL, Tart, both, on

MISSING_VM = {"get": 2, "ip": 2, "stop": 2, "delete": 2, "set": 2, "suspend": 2}


async def listed(tart: Tart, *words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(await tart.done("list", "--format", "json", *words))
    return rows


@both
async def test_missing_vm_has_code_2_and_a_bare_line(tart: Tart) -> None:
    ended = await tart("get", "nothing")

    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr == 'the specified VM "nothing" does not exist\n'


@on(VIRTUAL)
async def test_missing_vm_has_code_2_in_every_command_but_run(tart: Tart) -> None:
    codes = {verb: (await tart(verb, "nothing")).code for verb in MISSING_VM}

    assert codes == MISSING_VM
    assert (await tart("exec", "nothing", "true")).code == 2


@both
async def test_run_opens_the_vm_while_it_reads_its_arguments(tart: Tart) -> None:
    """Hence its own code and prefix for a VM that is not there."""
    ended = await tart("run", "nothing")

    assert (ended.code, ended.stderr.startswith("Error: ")) == (1, True)
    assert "does not exist" in ended.stderr


@both
async def test_stopped_vm_is_not_stopped_again(tart: Tart) -> None:
    await tart.a_vm()

    ended = await tart("stop", "one")

    assert (ended.code, "is not running" in ended.stderr) == (2, True)


@on(VIRTUAL)
async def test_error_of_suspend_is_nested(tart: Tart) -> None:
    await tart.a_vm()

    ended = await tart("suspend", "one")

    assert (ended.code, ended.stderr.count("is not running")) == (2, 2)


@both
async def test_vm_runs_once(tart: Tart) -> None:
    await tart.a_vm()
    await tart.running("one")

    ended = await tart("run", "one")

    assert (ended.code, "is already running" in ended.stderr) == (2, True)


@both
async def test_running_vm_is_not_deleted(tart: Tart) -> None:
    await tart.a_vm()
    await tart.running("one")

    ended = await tart("delete", "one")

    assert (ended.code, '" is running' in ended.stderr) == (1, True)
    assert tart.vm("one").exists()


WRONG = {
    "clone one": "Missing expected argument",
    "get one --nonsense": "Unknown option",
    "list --source here": "not a valid",
    "get one --format yaml": "is invalid",
    "ip one --wait soon": "is invalid",
    "prune": "at least one criteria",
    "rename nothing two": "non-existent",
    "run one --net-host --net-softnet": "mutually exclusive",
    "run one --root-disk-opts fast": "unsupported",
    "nonsense": "Unexpected argument",
    "create two": "either",
}


@on(VIRTUAL)
async def test_wrong_usage_has_code_64_and_a_hint(tart: Tart) -> None:
    await tart.a_vm()

    for words, fragment in WRONG.items():
        ended = await tart(*words.split())
        assert (ended.code, fragment in ended.stderr) == (64, True), ended
        assert ended.stderr.startswith("Error: ")
        assert "Usage: tart" in ended.stderr
        assert "--help' for more information." in ended.stderr


@on(VIRTUAL)
async def test_version_is_printed_alone(tart: Tart) -> None:
    tart.configure(version="2.28.6")

    assert await tart.done("--version") == "2.28.6\n"


@both
async def test_help_lists_all_commands(tart: Tart) -> None:
    assert "clone" in await tart.done("--help")
    assert "<source-name> <new-name>" in await tart.done("clone", "--help")


@both
async def test_empty_list_is_an_empty_line_or_an_empty_array(tart: Tart) -> None:
    assert await tart.done("list") == "\n"
    assert await tart.done("list", "--format", "json") == "[\n\n]\n"


@both
async def test_json_has_the_format_of_swift(tart: Tart) -> None:
    await tart.done("pull", IMAGE)

    stdout = await tart.done("list", "--format", "json")

    assert r'"Name" : "ghcr.io\/tuist\/runner:1"' in stdout


@on(VIRTUAL)
async def test_keys_have_no_order(tart: Tart) -> None:
    await tart.a_vm()

    orders = {tuple(json.loads(await tart.done("get", "one", "--format", "json"))) for _ in "1234"}

    assert len(orders) > 1


@on(VIRTUAL)
async def test_image_is_listed_by_tag_and_by_digest(tart: Tart) -> None:
    await tart.a_vm()

    rows = await listed(tart)

    assert [row["Source"] for row in rows] == ["local", "OCI", "OCI"]
    assert [row["Name"].rpartition("runner")[2][:8] for row in rows[1:]] == [":1", "@sha256:"]
    assert [row["Name"] for row in await listed(tart, "--source", "local")] == ["one"]


@both
async def test_size_is_a_number_in_list_and_a_string_in_get(tart: Tart) -> None:
    await tart.a_vm()

    (row,) = await listed(tart, "--source", "local")
    got = json.loads(await tart.done("get", "one", "--format", "json"))

    assert (row["Size"], got["Size"]) == (1, "1.000")
    assert (row["Disk"], got["Disk"]) == (5, 5)


FIELDS = {
    "2.7.0": ("oci", {"Disk", "Name", "Running", "Size", "Source", "State"}, False),
    "2.15.0": ("OCI", {"Disk", "Name", "Running", "Size", "SizeOnDisk", "Source", "State"}, True),
    "2.32.1": ("OCI", {"Accessed", "Disk", "Name", "Running", "Size", "Source", "State"}, True),
}


@on(VIRTUAL)
async def test_fields_depend_on_the_release(tart: Tart) -> None:
    await tart.a_vm()

    for version, (source, fields, has_system) in FIELDS.items():
        tart.configure(version=version)
        row = (await listed(tart))[-1]
        got = json.loads(await tart.done("get", "one", "--format", "json"))
        assert (row["Source"], set(row), "OS" in got) == (source, fields, has_system)


@on(VIRTUAL)
async def test_table_has_columns(tart: Tart) -> None:
    await tart.a_vm()

    first, second, *_ = (await tart.done("list")).splitlines()

    assert first.split() == ["Source", "Name", "Disk", "Size", "Accessed", "State"]
    assert second.split()[:4] == ["local", "one", "5", "1"]


@on(VIRTUAL)
async def test_reported_state_may_be_wrong(tart: Tart) -> None:
    await tart.a_vm()
    tart.fault("list", "state", value="running")

    (row,) = await listed(tart, "--source", "local")

    assert (row["State"], row["Running"]) == ("running", True)


@both
async def test_fqn_prints_the_digest_of_a_cached_tag_only(tart: Tart) -> None:
    await tart.done("pull", IMAGE)

    stdout = await tart.done("fqn", IMAGE)
    other = await tart("fqn", "ghcr.io/tuist/runner:2")

    assert stdout.startswith("ghcr.io/tuist/runner@sha256:")
    assert await tart.done("fqn", "whatever") == "whatever\n"
    assert (other.code, "is not a digest" in other.stderr) == (1, True)


@on(VIRTUAL)
async def test_misspelt_settings_are_refused(tart: Tart) -> None:
    tart.configure(images={IMAGE: {**SMALL, "sise": 1}})

    ended = await tart("list")

    assert (ended.code, "unknown key sise" in ended.stderr) == (78, True)


@on(VIRTUAL)
async def test_home_that_cannot_be_made_is_invalid(tart: Tart) -> None:
    (tart.home / "cache").write_text("")

    ended = await tart("list")

    assert (ended.code, ended.stderr.startswith("TART_HOME is invalid")) == (1, True)
