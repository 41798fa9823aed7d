"""Listen addresses: parsing, the URL for clients, and errors of binding."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from bramley.app.listen_address import Address, bind, bound_address
from bramley.base.errors import BadConfiguration


@pytest.mark.parametrize(
    ("text", "host", "port", "url"),
    [
        ("127.0.0.1:6443", "127.0.0.1", 6443, "https://127.0.0.1:6443"),
        ("localhost:0", "localhost", 0, "https://localhost:0"),
        ("[::1]:6443", "::1", 6443, "https://[::1]:6443"),
        ("0.0.0.0:443", "0.0.0.0", 443, "https://127.0.0.1:443"),
        ("[::]:443", "::", 443, "https://[::1]:443"),
    ],
)
def test_address_and_url(text: str, host: str, port: int, url: str) -> None:
    address = Address.parse(text)

    assert (address.host, address.port) == (host, port)
    assert address.url == url
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "6443", ":6443", "127.0.0.1", "127.0.0.1:", "a:b", "a:-1", "a:65536", "::1:6443", "a:٣"],
)
def test_invalid_address_is_refused_with_advice(text: str) -> None:
    with pytest.raises(BadConfiguration, match=r"--listen .*(write it like|choose 0 to 65535)"):
        Address.parse(text)


def test_port_zero_takes_a_free_port() -> None:
    requested = Address("127.0.0.1", 0)

    with closing(bind(requested)) as bound:
        found = bound_address(requested, bound)

    assert found.port > 0
    assert found.host == "127.0.0.1"


def test_port_in_use_is_reported_with_advice() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        address = Address("127.0.0.1", other.getsockname()[1])

        with pytest.raises(BadConfiguration, match=r"is in use by another program; .*--listen"):
            bind(address)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_host_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(BadConfiguration, match=r"cannot be (resolved|listened on)"):
        bind(Address(host, 0))
