"""The agent's self-signed certificate: created by openssl, private, and renewed in time."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bramley.agent.processes import SystemPrograms
from bramley.agent.programs import ProgramResult
from bramley.agent.serving.certificate import SelfSigned
from bramley.base import errors

HOSTS = ("mac-1", "10.0.0.7", "fd00::1")


@dataclass
class Clock:
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


@dataclass
class Broken:
    """An openssl that does not work."""

    async def run(self, argv: Sequence[str], **_options: Any) -> ProgramResult:
        return ProgramResult(1, stderr=f"{argv[1]}: unknown option")


def a_pair(folder: Path, clock: Clock, hosts: tuple[str, ...] = HOSTS) -> SelfSigned:
    return SelfSigned(folder, hosts, SystemPrograms({"PATH": "/usr/bin:/bin"}), clock)


@pytest.mark.tier("process")
async def test_pair_is_created_once_and_private(tmp_path: Path) -> None:
    from cryptography import x509

    made = a_pair(tmp_path / "serving", Clock())

    assert await made.ensure()
    assert not await made.ensure()
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    for path in (made.pair.certificate, made.pair.key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(path.name for path in made.folder.iterdir()) == ["serving.crt", "serving.key"]
    parsed = x509.load_pem_x509_certificate(made.pair.certificate.read_bytes())
    names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == list(HOSTS)
    left = parsed.not_valid_after_utc - parsed.not_valid_before_utc
    assert left == timedelta(days=365)


@pytest.mark.tier("process")
async def test_pair_is_renewed_before_it_expires_or_when_it_is_unsuitable(tmp_path: Path) -> None:
    clock = Clock()
    made = a_pair(tmp_path, clock)
    await made.ensure()
    before = made.pair.certificate.read_bytes()

    clock.at += timedelta(days=200)
    assert not await made.ensure()
    clock.at += timedelta(days=50)
    assert await made.ensure()
    assert made.pair.certificate.read_bytes() != before
    assert await a_pair(tmp_path, clock, ("mac-2",)).ensure()
    made.pair.key.chmod(0o644)
    assert await a_pair(tmp_path, clock, ("mac-2",)).ensure()
    assert stat.S_IMODE(made.pair.key.stat().st_mode) == 0o600


async def test_error_of_openssl_names_the_alternative_flag(tmp_path: Path) -> None:
    made = SelfSigned(tmp_path, HOSTS, Broken(), Clock())

    with pytest.raises(errors.Unavailable, match=r"unknown option.*--tls-cert-file"):
        await made.ensure()
    assert not made.pair.key.exists()
