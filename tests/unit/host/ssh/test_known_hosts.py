"""A known-hosts file in OpenSSH's format: read as ssh reads it, written at once, foreign lines untouched."""

from __future__ import annotations

import base64
import hmac
from pathlib import Path

import pytest

from bramley.base.errors import BadConfiguration
from bramley.host.ssh import HostKey, KnownHosts
from bramley.host.ssh.known_hosts import fingerprint


def key(name: str) -> HostKey:
    public = base64.b64encode(name.encode()).decode()
    return HostKey("ssh-ed25519", fingerprint(public), public)


ONE, TWO = key("one"), key("two")


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
        + line("10.0.0.9", ONE, "@revoked ")
        + line("10.0.0.10", ONE, "@revoked ")
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
        ("10.0.0.10", 22, [TWO]),
        ("10.0.0.11", 22, []),
    ],
)
def test_keys_are_found_by_name_port_hash_and_pattern(
    known: KnownHosts, host: str, port: int, keys: list[HostKey]
) -> None:
    assert list(known.known(host, port)) == keys


def test_a_host_with_only_a_revoked_key_is_no_first_contact(known: KnownHosts) -> None:
    (nothing,) = known.known("10.0.0.9", 22)

    assert not nothing.is_same(ONE)


def test_a_key_is_learned_for_its_owner_only_and_other_lines_stay(
    known: KnownHosts, path: Path
) -> None:
    path.chmod(0o644)
    before = path.read_text()

    known.learn("10.0.0.12", 2222, TWO)

    assert path.read_text() == before + line("[10.0.0.12]:2222", TWO)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(known.known("10.0.0.12", 2222)) == [TWO]


def test_a_file_that_is_not_there_is_made_with_its_folder(path: Path) -> None:
    known = KnownHosts(path)
    assert known.known("h", 22) == ()

    known.learn("h", 22, ONE)

    assert path.read_text() == line("h", ONE)
    assert list(path.parent.iterdir()) == [path]
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_without_a_last_line_end_gets_one_before_the_new_key(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(line("h", ONE).rstrip("\n"))

    KnownHosts(path).learn("i", 22, TWO)

    assert path.read_text() == line("h", ONE) + line("i", TWO)


def test_a_host_is_forgotten_and_nobody_else(known: KnownHosts, path: Path) -> None:
    known.forget("10.0.0.7", 22)
    known.forget("secret.example", 22)
    known.forget("a.lab", 22)
    known.forget("10.0.0.10", 22)

    assert path.read_text() == (
        "# mine\n\n"
        + line("mac-7.example", ONE)
        + line("[10.0.0.8]:2222", TWO)
        + line("*.lab,!bad.lab", TWO)
        + line("10.0.0.9", ONE, "@revoked ")
        + line("10.0.0.10", ONE, "@revoked ")
        + "garbage\n10.0.0.7 ssh-ed25519 not-base64!\n"
    )


def test_the_advice_names_host_port_and_file(path: Path) -> None:
    assert KnownHosts(path).advice("h", 2222) == f"run: ssh-keygen -R '[h]:2222' -f {path}"


def test_a_file_that_cannot_be_used_is_told_by_its_path(path: Path) -> None:
    path.mkdir(parents=True)

    with pytest.raises(BadConfiguration, match="known_hosts cannot be read: Is a directory"):
        KnownHosts(path).known("h", 22)
