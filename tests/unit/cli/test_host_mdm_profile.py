"""`bramley host mdm-profile`: the settings of the steps as a configuration profile, without secrets, the same bytes each time."""

from __future__ import annotations

import os
import plistlib
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from bramley.cli import main
from bramley.host.steps import local_network, sleep, updates

pytestmark = pytest.mark.usefixtures("restore_logging")
Captured = pytest.CaptureFixture[str]
# The keys of each payload in Apple's published schemas, https://github.com/apple/device-management.
SCHEMAS = {
    "com.apple.MCX": {
        "com.apple.EnergySaver.desktop.ACPower",
        "com.apple.EnergySaver.portable.ACPower",
        "com.apple.EnergySaver.portable.BatteryPower",
        "dontAllowFDEEnable",
    },
    "com.apple.SoftwareUpdate": {
        "AutomaticCheckEnabled",
        "AutomaticDownload",
        "AutomaticallyInstallMacOSUpdates",
        "CriticalUpdateInstall",
    },
    "com.apple.loginwindow": {
        "SleepDisabled",
        "LogOutDisabledWhileLoggedIn",
        "DisableScreenLockImmediate",
    },
    "com.apple.ManagedClient.preferences": {"PayloadContent"},
}
COMMON = {
    *("PayloadType", "PayloadVersion", "PayloadIdentifier", "PayloadUUID"),
    *("PayloadDisplayName", "PayloadDescription"),
}


def profile(capsys: Captured, *arguments: str) -> dict[str, Any]:
    assert main.run(["host", "mdm-profile", *arguments]) == 0
    found = plistlib.loads(capsys.readouterr().out.encode(), fmt=plistlib.FMT_XML)
    assert isinstance(found, dict)
    return found


def payload(found: dict[str, Any], name: str) -> dict[str, Any]:
    [one] = [
        each for each in found["PayloadContent"] if each["PayloadIdentifier"].endswith(f".{name}")
    ]
    assert isinstance(one, dict)
    return one


def forced(found: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """Return the managed preferences of a payload by domain."""
    content = payload(found, name)["PayloadContent"]
    return {
        domain: each["Forced"][0]["mcx_preference_settings"] for domain, each in content.items()
    }


def test_profile_and_payloads_have_the_required_keys(capsys: Captured) -> None:
    found = profile(capsys)

    assert (found["PayloadType"], found["PayloadVersion"]) == ("Configuration", 1)
    assert (found["PayloadScope"], found["TargetDeviceType"]) == ("System", 5)
    payloads = [found, *found["PayloadContent"]]
    assert [each for each in payloads if not each.keys() >= COMMON] == []
    for key in ("PayloadUUID", "PayloadIdentifier"):
        assert len({each[key] for each in payloads}) == len(payloads)
    assert all(str(uuid.UUID(one["PayloadUUID"])).upper() == one["PayloadUUID"] for one in payloads)


def test_payloads_have_only_keys_of_apples_schemas(capsys: Captured) -> None:
    found = profile(capsys)["PayloadContent"]

    assert {each["PayloadType"] for each in found} == SCHEMAS.keys()
    for each in found:
        assert each.keys() - COMMON <= SCHEMAS[each["PayloadType"]]


def test_values_are_those_of_the_steps(capsys: Captured) -> None:
    found = profile(capsys)

    timers = {"Disk Sleep Timer": 0, "Display Sleep Timer": 0, "System Sleep Timer": 0}
    assert len(timers) == len(sleep.NEVER)
    energy = payload(found, "energy")
    assert [energy[f"com.apple.EnergySaver.{each}"] for each in ("desktop.ACPower", "portable.ACPower", "portable.BatteryPower")] == [timers] * 3  # fmt: skip
    update = payload(found, "updates")
    assert all(update[setting.key] == setting.value for setting in updates.SETTINGS)
    session = forced(found, "session")
    assert all(session[Path(one.domain).name][one.key] == one.value for one in sleep.SETTINGS)
    assert session.keys() == {"com.apple.screensaver", ".GlobalPreferences"}
    networks = forced(found, "local-network")["com.apple.network.local-network"]
    assert networks == {key: list(local_network.NETWORKS) for key in local_network.KEYS}
    assert "Untried" in payload(found, "local-network")["PayloadDescription"]


def test_profile_has_no_secret_and_does_not_replace_automatic_login(capsys: Captured) -> None:
    """A user name without its password might replace the password that `prepare` has stored."""
    assert main.run(["host", "mdm-profile"]) == 0

    text = capsys.readouterr().out
    assert not re.search("Autologin|autoLogin|kcpassword|TCC", text)
    assert "Password" not in text.replace("askForPassword", "")


def test_bytes_are_reproducible(tmp_path: Path, capsys: Captured) -> None:
    files = [tmp_path / name for name in ("a.mobileconfig", "b.mobileconfig")]
    for file in files:
        assert main.run(["host", "mdm-profile", "-o", str(file)]) == 0
    assert main.run(["host", "mdm-profile", "--out", str(files[0])]) == 0, "it replaces itself"
    capsys.readouterr()
    assert main.run(["host", "mdm-profile", "-o", "-"]) == 0

    printed = capsys.readouterr().out.encode()
    assert [file.read_bytes() for file in files] == [printed, printed]
    assert sorted(tmp_path.iterdir()) == files


def test_profile_is_named_after_the_node_of_a_file(tmp_path: Path, capsys: Captured) -> None:
    config = tmp_path / "mac.yaml"
    config.write_text("node: mac-1\n")
    general, own = profile(capsys), profile(capsys, "-c", str(config))

    assert own["PayloadIdentifier"] == f"{general['PayloadIdentifier']}.mac-1"
    assert "mac-1" in own["PayloadDisplayName"]
    assert own["PayloadUUID"] != general["PayloadUUID"]
    assert forced(own, "session") == forced(general, "session")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("node: [", "not valid YAML"),
        ("node: Mac;1", "node 'Mac;1' must be the name of a Node"),
        ("node: mac-1\ncolour: red", "unknown field `colour`"),
        (None, "--config: No such file"),
    ],
)
def test_invalid_file_writes_nothing(
    text: str | None, problem: str, tmp_path: Path, capsys: Captured
) -> None:
    config, out = tmp_path / "mac.yaml", tmp_path / "out"
    if text is not None:
        config.write_text(text)

    assert main.run(["host", "mdm-profile", "-c", str(config), "-o", str(out)]) == 2

    assert problem in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"other",
        plistlib.dumps({"PayloadIdentifier": "dev.tuist.mac-hosting"}),
        plistlib.dumps(["dev.tuist.mac-host"]),
        plistlib.dumps({"PayloadIdentifier": 1}),
    ],
)
def test_other_file_is_not_replaced(content: bytes, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "out"
    out.write_bytes(content)

    assert main.run(["host", "mdm-profile", "-o", str(out)]) == 2

    assert "exists and is not such a profile; choose another file" in capsys.readouterr().err
    assert out.read_bytes() == content


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_only_files_are_written(kind: str, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "out"
    out.mkdir() if kind == "folder" else os.mkfifo(out)

    assert main.run(["host", "mdm-profile", "-o", str(out)]) == 2

    assert "or - for standard output" in capsys.readouterr().err
    assert not out.is_file()
