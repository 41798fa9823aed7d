"""A known_hosts file in OpenSSH's format: read as ssh reads it, written atomically, foreign lines kept."""

from __future__ import annotations

import base64
import hmac
from pathlib import Path

import asyncssh
import pytest

from bramley.base.errors import BadConfiguration
from bramley.host.ssh import HostKey, KnownHosts

ONE, TWO = (HostKey.of(asyncssh.generate_private_key("ssh-ed25519")) for _ in range(2))


def line(hosts: str, of: HostKey, marker: str = "") -> str:
    return f"{marker}{hosts} {of.algorithm} {of.public}\n"


def hashed(name: str) -> str:
    salt = b"0123456789abcdefghij"
    digest = hmac.digest(salt, name.encode(), "sha1")
    return "|1|" + "|".join(base64.b64encode(part).decode() for part in (salt, digest))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ssh" / "known_hosts"


@pytest.fixture
def known(path: Path) -> KnownHosts:
    path.parent.mkdir()
    path.write_text(
        "# mine\n\n"
        + line("10.0.0.7,mac-7.example", ONE)
        + line("[10.0.0.8]:2222", TWO)
        + line(hashed("secret.example"), ONE)
        + line("*.lab,!bad.lab", TWO)
        + line("Upper.Example", TWO)
        + line("[*.net]:2222", TWO)
        + line("10.0.0.9", ONE, "@revoked ")
        + line("10.0.0.10", ONE, "@revoked ")
        + line("10.0.0.10", ONE)
        + line("10.0.0.10", TWO)
        + "garbage\n10.0.0.7 ssh-ed25519 not-base64!\n"
    )
    return KnownHosts(path)


@pytest.mark.parametrize(
    ("host", "port", "keys"),
    [
        ("10.0.0.7", 22, [ONE]),
        ("MAC-7.example", 22, [ONE]),
        ("10.0.0.7", 2222, []),
        ("10.0.0.8", 2222, [TWO]),
        ("10.0.0.8", 22, []),
        ("secret.example", 22, [ONE]),
        ("a.lab", 22, [TWO]),
        ("bad.lab", 22, []),
        ("upper.example", 22, [TWO]),
        ("mac.net", 2222, [TWO]),
        ("mac.net", 22, []),
        ("10.0.0.10", 22, [TWO]),
        ("10.0.0.11", 22, []),
    ],
)
def test_keys_are_found_by_name_port_hash_and_pattern(
    known: KnownHosts, host: str, port: int, keys: list[HostKey]
) -> None:
    assert list(known.keys_of(host, port)) == keys


def test_host_with_only_a_revoked_key_is_not_trusted_on_first_use(known: KnownHosts) -> None:
    (nothing,) = known.keys_of("10.0.0.9", 22)

    assert not nothing.is_same(ONE)


def test_key_is_appended_with_mode_0600_and_other_lines_are_kept(
    known: KnownHosts, path: Path
) -> None:
    path.chmod(0o644)
    before = path.read_text()

    known.add("10.0.0.12", 2222, TWO)

    assert path.read_text() == before + line("[10.0.0.12]:2222", TWO)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(known.keys_of("10.0.0.12", 2222)) == [TWO]


def test_missing_file_is_created_with_its_folder(path: Path) -> None:
    known = KnownHosts(path)
    assert known.keys_of("h", 22) == ()

    known.add("h", 22, ONE)

    assert path.read_text() == line("h", ONE)
    assert list(path.parent.iterdir()) == [path]
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_missing_final_newline_is_added_before_the_new_key(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(line("h", ONE).rstrip("\n"))

    KnownHosts(path).add("i", 22, TWO)

    assert path.read_text() == line("h", ONE) + line("i", TWO)


def test_only_the_given_host_is_forgotten(known: KnownHosts, path: Path) -> None:
    known.remove("10.0.0.7", 22)
    known.remove("secret.example", 22)
    known.remove("a.lab", 22)
    known.remove("10.0.0.10", 22)

    assert path.read_text() == (
        "# mine\n\n"
        + line("mac-7.example", ONE)
        + line("[10.0.0.8]:2222", TWO)
        + line("*.lab,!bad.lab", TWO)
        + line("Upper.Example", TWO)
        + line("[*.net]:2222", TWO)
        + line("10.0.0.9", ONE, "@revoked ")
        + line("10.0.0.10", ONE, "@revoked ")
        + "garbage\n10.0.0.7 ssh-ed25519 not-base64!\n"
    )


def test_the_advice_names_host_port_and_file(path: Path) -> None:
    assert KnownHosts(path).advice("h", 2222) == f"run: ssh-keygen -R '[h]:2222' -f {path}"


def test_unreadable_file_is_named_in_the_error(path: Path) -> None:
    path.mkdir(parents=True)

    with pytest.raises(BadConfiguration, match="known_hosts cannot be read: Is a directory"):
        KnownHosts(path).keys_of("h", 22)
