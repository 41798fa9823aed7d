from __future__ import annotations

from pathlib import Path

import pytest

from bramley.access import kubeconfig
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube import config_loader
from bramley.kube.config import ClientConfig
from bramley.kube.tls import Trust

TOKEN = Secret("the-token")


def rendered(trust: Trust) -> Secret:
    return kubeconfig.render("mac-1", TOKEN, server="https://api:6443", trust=trust)


def test_client_reads_what_is_rendered(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    trust = Trust("-----BEGIN CERTIFICATE-----\nAAAA\n", server_name="kubernetes")

    file.write_text(rendered(trust).reveal())
    found = config_loader.load(file, environment={})

    assert found.server == "https://api:6443"
    assert found.trust.authorities == trust.authorities
    assert found.trust.server_name == "kubernetes"


def test_content_is_redacted_in_repr() -> None:
    assert "the-token" not in repr(rendered(Trust()))
    assert "the-token" in rendered(Trust()).reveal()


def test_only_our_own_file_is_replaced() -> None:
    assert kubeconfig.is_agent_kubeconfig(rendered(Trust()).reveal().encode())
    assert not kubeconfig.is_agent_kubeconfig(b"apiVersion: v1\nkind: Config\n")
    assert not kubeconfig.is_agent_kubeconfig(b'{"current-context": "bramley"}')
    assert not kubeconfig.is_agent_kubeconfig(b"[]")


def test_agent_gets_the_administrators_address_unless_another_is_given() -> None:
    access = ClientConfig("https://127.0.0.1:6443")

    assert kubeconfig.server_for_agent(access, None) == "https://127.0.0.1:6443"
    assert (
        kubeconfig.server_for_agent(access, "https://api.example.com/") == "https://api.example.com"
    )


@pytest.mark.parametrize("server", ["api.example.com", "https://me:secret@api", "ftp://api"])
def test_invalid_address_is_refused(server: str) -> None:
    with pytest.raises(errors.BadConfiguration, match="--server"):
        kubeconfig.server_for_agent(ClientConfig("https://a"), server)


def test_kubeconfig_always_verifies_the_server() -> None:
    blind = ClientConfig("https://a", trust=Trust(verify=False))

    with pytest.raises(errors.BadConfiguration, match="insecure-skip-tls-verify"):
        kubeconfig.server_for_agent(blind, None)
