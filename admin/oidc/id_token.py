"""Checks of an ID token: signature by the provider's keys, issuer, audience, times, nonce.

OpenID Connect Core 1.0, 3.1.3.7. Algorithms are a list of ours: neither `none` nor one with a shared key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import (
    ExpiredTokenError,
    InvalidClaimError,
    InvalidKeyIdError,
    JoseError,
    MissingClaimError,
)
from joserfc.jwk import KeySet

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
LEEWAY_S: Final = 60
"""Difference between the provider's clock and ours."""
_BY_CLAIM: Final = {
    "iss": "login.oidc_issuer",
    "aud": "login.oidc_audience",
    "nonce": "login.oidc_nonce",
}


class OidcRefused(Exception):
    """A sign-in that is refused. `key` is the key of its sentence; the text is for the log."""

    def __init__(self, key: str, detail: object = "") -> None:
        super().__init__(f"{key}: {detail}")
        self.key = key


class UnknownKey(Exception):
    """The token names a key that is not in the set: the provider may have new ones."""


def checked_claims(
    token: str, keys: KeySet, *, issuer: str, client_id: str, nonce: str, now: Callable[[], int]
) -> dict[str, Any]:
    """Returns the claims of a good token. `now` is in seconds. Raises OidcRefused, UnknownKey."""
    try:
        found = jwt.decode(token, keys, algorithms=list(ALGORITHMS))
    except InvalidKeyIdError as exc:
        raise UnknownKey from exc
    except (JoseError, ValueError, TypeError, KeyError) as exc:
        raise OidcRefused("login.oidc_signature", type(exc).__name__) from exc
    rules = jwt.JWTClaimsRegistry(
        now=now,
        leeway=LEEWAY_S,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": client_id},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
        nonce={"essential": True, "value": nonce},
    )
    claims = dict(found.claims)
    try:
        rules.validate(claims)
    except ExpiredTokenError as exc:
        raise OidcRefused("login.oidc_expired", exc) from exc
    except (InvalidClaimError, MissingClaimError) as exc:
        raise OidcRefused(_BY_CLAIM.get(str(exc.claim), "login.oidc_token"), exc) from exc
    except (JoseError, ValueError, TypeError) as exc:
        raise OidcRefused("login.oidc_token", exc) from exc
    _check_party(claims, client_id)
    return claims


def _check_party(claims: dict[str, Any], client_id: str) -> None:
    """A token for several audiences names the one that asked for it."""
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if (several or "azp" in claims) and claims.get("azp") != client_id:
        raise OidcRefused("login.oidc_audience", "azp")
    if not isinstance(claims["sub"], str) or not 0 < len(claims["sub"]) <= 255:
        raise OidcRefused("login.oidc_token", "sub")
