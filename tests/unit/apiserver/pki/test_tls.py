from __future__ import annotations

import asyncio
import ssl
import stat
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from bramley.apiserver.pki import certificates
from bramley.apiserver.pki.tls import FOLDER, Certificates, Settings
from bramley.base.errors import BadConfiguration
from tests import virtual_time
from tests.virtual_time import EPOCH

NAMES = ("ca.crt", "ca.key", "serving.crt", "serving.key")


class At:
    """A clock that stands where the test puts it."""

    def __init__(self, when: datetime = EPOCH) -> None:
        self.when = when

    def now(self) -> datetime:
        return self.when

    def monotonic(self) -> float:
        return self.when.timestamp()


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / FOLDER / name).read_bytes() for name in NAMES}


def serving_facts(folder: Path) -> certificates.Facts:
    found = contents(folder)
    return certificates.read(found["serving.crt"], found["serving.key"], signer=found["ca.crt"])


def handshake(server: ssl.SSLContext, *, trusting: bytes, name: str) -> bytes:
    """Connect a client that trusts one authority to the server in memory; return the certificate that it received."""
    client = ssl.create_default_context(cadata=trusting.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=name)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(5):
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    seen = one.getpeercert(binary_form=True)
    assert seen is not None
    return seen


def test_first_start_creates_an_authority_and_a_serving_certificate(tmp_path: Path) -> None:
    own = Certificates(tmp_path, hosts=["mac.example.com"])

    assert own.ensure()

    facts = serving_facts(tmp_path)
    assert facts.key_matches
    assert facts.signed_by_authority
    assert {"127.0.0.1", "::1", "localhost", "mac.example.com"} == facts.hosts


def test_keys_and_their_folder_are_private(tmp_path: Path) -> None:
    Certificates(tmp_path).ensure()

    modes = {name: (tmp_path / FOLDER / name).stat().st_mode for name in NAMES}

    assert dict.fromkeys(NAMES, 0o600) == {n: stat.S_IMODE(mode) for n, mode in modes.items()}
    assert stat.S_IMODE((tmp_path / FOLDER).stat().st_mode) == 0o700


def test_second_start_changes_nothing(tmp_path: Path) -> None:
    Certificates(tmp_path).ensure()
    before = contents(tmp_path)

    assert not Certificates(tmp_path).ensure()

    assert before == contents(tmp_path)


def test_second_start_needs_no_heavy_library(tmp_path: Path) -> None:
    Certificates(tmp_path).ensure()
    code = (
        "import sys, pathlib; from bramley.apiserver.pki.tls import Certificates;"
        "print(Certificates(pathlib.Path(sys.argv[1])).ensure(), 'cryptography' in sys.modules)"
    )

    output = subprocess.check_output([sys.executable, "-c", code, str(tmp_path)], text=True)

    assert output.split() == ["False", "False"]


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", "localhost"])
def test_client_that_trusts_the_authority_accepts_the_server(name: str, tmp_path: Path) -> None:
    own = Certificates(tmp_path)
    own.ensure()

    assert handshake(own.context(), trusting=own.authority, name=name)


def test_client_that_trusts_another_authority_refuses_the_server(tmp_path: Path) -> None:
    own, other = Certificates(tmp_path / "a"), Certificates(tmp_path / "b")
    own.ensure()
    other.ensure()

    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(own.context(), trusting=other.authority, name="localhost")


def test_wildcard_address_is_not_named_in_the_certificate(tmp_path: Path) -> None:
    Certificates(tmp_path, hosts=["0.0.0.0"]).ensure()

    assert "0.0.0.0" not in serving_facts(tmp_path).hosts


def test_new_listen_host_gets_a_new_serving_certificate(tmp_path: Path) -> None:
    Certificates(tmp_path).ensure()
    before = contents(tmp_path)

    assert Certificates(tmp_path, hosts=["10.1.2.3"]).ensure()

    assert "10.1.2.3" in serving_facts(tmp_path).hosts
    assert before["ca.crt"] == contents(tmp_path)["ca.crt"]


@pytest.mark.parametrize(
    ("days", "renewed"), [(0, False), (243, False), (244, True), (366, True), (-1, True)]
)
def test_serving_certificate_is_renewed_after_two_thirds_of_its_life(
    days: int, renewed: bool, tmp_path: Path
) -> None:
    clock = At()
    own = Certificates(tmp_path, clock=clock)
    own.ensure()
    before = contents(tmp_path)

    clock.when += timedelta(days=days)

    assert renewed == own.ensure()
    after = contents(tmp_path)
    assert renewed == (before["serving.key"] != after["serving.key"])


def test_renewed_authority_keeps_its_key_and_old_kubeconfigs_work(tmp_path: Path) -> None:
    clock = At()
    own = Certificates(tmp_path, clock=clock)
    own.ensure()
    before = contents(tmp_path)

    clock.when += timedelta(days=2500)
    own.ensure()

    after = contents(tmp_path)
    assert before["ca.crt"] != after["ca.crt"]
    assert before["ca.key"] == after["ca.key"]
    old_view = certificates.read(
        after["serving.crt"], after["serving.key"], signer=before["ca.crt"]
    )
    assert old_view.signed_by_authority


async def test_running_server_shows_the_renewed_certificate_to_new_connections(
    tmp_path: Path,
) -> None:
    lives = Settings(serving_lifetime=timedelta(days=3), check_interval=timedelta(hours=1))
    # The real date counts in the handshake, so the run starts there.
    clock = virtual_time.VirtualClock(asyncio.get_running_loop(), epoch=datetime.now().astimezone())
    own = Certificates(tmp_path, settings=lives, clock=clock)
    own.ensure()
    context = own.context()
    first = handshake(context, trusting=own.authority, name="localhost")
    renewals: list[float] = []

    async with asyncio.TaskGroup() as group:
        fresh = group.create_task(own.run_renewal(lambda: renewals.append(clock.monotonic())))
        await asyncio.sleep(timedelta(hours=47).total_seconds())
        assert renewals == []
        await asyncio.sleep(timedelta(hours=2).total_seconds())
        fresh.cancel()

    assert len(renewals) == 1
    # The new one starts two days from now, so a client of today is shown it but cannot accept it yet.
    client = ssl.create_default_context(cadata=own.authority.decode())
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server)
    other = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (one, other, one, other, one):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert first != one.getpeercert(binary_form=True)


async def test_renewal_that_fails_is_tried_again(tmp_path: Path) -> None:
    lives = Settings(serving_lifetime=timedelta(days=3), check_interval=timedelta(hours=1))
    own = Certificates(tmp_path, settings=lives, clock=virtual_time.clock())
    own.ensure()
    own.context()
    key = tmp_path / FOLDER / "ca.key"
    good = key.read_bytes()
    key.write_bytes(b"damaged")
    renewals: list[int] = []

    async with asyncio.TaskGroup() as group:
        fresh = group.create_task(own.run_renewal(lambda: renewals.append(1)))
        await asyncio.sleep(timedelta(hours=60).total_seconds())
        assert renewals == []
        key.write_bytes(good)
        await asyncio.sleep(timedelta(hours=2).total_seconds())
        fresh.cancel()

    assert renewals == [1]


@pytest.mark.parametrize(
    ("name", "content"),
    [("ca.crt", b"garbage"), ("ca.key", b"garbage"), ("ca.key", b""), ("ca.crt", b"")],
)
def test_damaged_authority_is_refused_with_advice(
    name: str, content: bytes, tmp_path: Path
) -> None:
    Certificates(tmp_path).ensure()
    (tmp_path / FOLDER / name).write_bytes(content)

    with pytest.raises(BadConfiguration, match=r"cannot be used: .*restore that folder"):
        Certificates(tmp_path).ensure()


def test_authority_whose_key_is_lost_is_refused(tmp_path: Path) -> None:
    Certificates(tmp_path).ensure()
    (tmp_path / FOLDER / "ca.key").unlink()

    with pytest.raises(BadConfiguration, match=r"ca\.key .*it is missing"):
        Certificates(tmp_path).ensure()


def test_authority_with_the_key_of_another_is_refused(tmp_path: Path) -> None:
    Certificates(tmp_path / "a").ensure()
    Certificates(tmp_path / "b").ensure()
    mixed = (tmp_path / "b" / FOLDER / "ca.key").read_bytes()
    (tmp_path / "a" / FOLDER / "ca.key").write_bytes(mixed)

    with pytest.raises(BadConfiguration, match="do not belong together"):
        Certificates(tmp_path / "a").ensure()


def test_start_interrupted_after_the_authority_key_is_completed(tmp_path: Path) -> None:
    Certificates(tmp_path).ensure()
    key = contents(tmp_path)["ca.key"]
    for name in ("ca.crt", "serving.crt", "serving.key"):
        (tmp_path / FOLDER / name).unlink()

    assert Certificates(tmp_path).ensure()

    assert key == contents(tmp_path)["ca.key"]
    assert serving_facts(tmp_path).signed_by_authority


@pytest.mark.parametrize("name", ["serving.crt", "serving.key"])
@pytest.mark.parametrize("content", [b"garbage", None])
def test_damaged_or_missing_serving_certificate_is_replaced(
    name: str, content: bytes | None, tmp_path: Path
) -> None:
    Certificates(tmp_path).ensure()
    if content is None:
        (tmp_path / FOLDER / name).unlink()
    else:
        (tmp_path / FOLDER / name).write_bytes(content)

    assert Certificates(tmp_path).ensure()

    facts = serving_facts(tmp_path)
    assert facts.key_matches
    assert facts.signed_by_authority
