from __future__ import annotations

import stat
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tools.kube import certificates
from tools.kube.certificates import Authority, Pair


def leaf_of(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def test_a_client_certificate_names_user_and_groups_and_verifies() -> None:
    authority = Authority.create()

    leaf = leaf_of(authority.client("system:node:mac", groups=("system:nodes", "more")))

    leaf.verify_directly_issued_by(authority.certificate)
    names = {
        oid: [attribute.value for attribute in leaf.subject.get_attributes_for_oid(oid)]
        for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    }
    assert list(names.values()) == [["system:node:mac"], ["system:nodes", "more"]]


def test_a_server_certificate_names_where_it_is_reached() -> None:
    pair = Authority.create().server("s", names=("localhost",), addresses=("127.0.0.1",))

    extension = leaf_of(pair).extensions.get_extension_for_class(x509.SubjectAlternativeName)

    assert extension.value.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(a) for a in extension.value.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_only_the_owner_can_read_keys(tmp_path: Path) -> None:
    certificates.ensure(tmp_path / "pki")

    keys = list((tmp_path / "pki").glob("*.key"))

    assert len(keys) == 7
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    assert stat.S_IMODE((tmp_path / "pki").stat().st_mode) == 0o700


def test_a_second_start_keeps_the_authority_and_renews_the_rest(tmp_path: Path) -> None:
    first = certificates.ensure(tmp_path / "pki")
    token_key = (tmp_path / "pki" / "service-account.key").read_bytes()
    serving = (tmp_path / "pki" / "serving.crt").read_bytes()

    second = certificates.ensure(tmp_path / "pki")

    assert second.certificate == first.certificate
    assert isinstance(second.key, ec.EllipticCurvePrivateKey)
    assert (tmp_path / "pki" / "service-account.key").read_bytes() == token_key
    assert (tmp_path / "pki" / "serving.crt").read_bytes() != serving
