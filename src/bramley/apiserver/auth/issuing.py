"""How others verify our ServiceAccounts' tokens: the issuer's document and the paths that it names."""

from __future__ import annotations

from typing import Any

from bramley.apiserver.auth.accounts import Accounts
from bramley.apiserver.auth.signing import ALGORITHM

CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"
KEYS_TYPE = "application/jwk-set+json"


def configuration(accounts: Accounts, host: str) -> dict[str, Any]:
    """Return the document that tells where the keys are: at the host by whose name the reader found this document."""
    return {
        "issuer": accounts.settings.issuer,
        "jwks_uri": f"https://{host}{KEYS}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
    }
