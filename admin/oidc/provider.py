"""The provider: its discovery document, its keys, and the exchange of a code for claims."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.discovery import get_well_known_url
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from admin.oidc.id_token import OidcRefused, UnknownKey, checked_claims
from admin.oidc.kept_fetch import KeptFetch
from admin.oidc.settings import OidcSettings
from channels.endpoints import BadEndpoint
from channels.json_fetch import FetchFailed, JsonFetch, check_secure

SCOPE: Final = "openid email profile"
_KEPT_S: Final = 3_600.0
"""Time for which the discovery document and the keys are kept."""
_KEYS_AGAIN_S: Final = 30.0
"""Least time between two fetches of keys: a forged key id must not make us ask each time."""
_ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class OidcProvider:
    """Thread-safe. Every method raises OidcRefused."""

    def __init__(
        self,
        settings: OidcSettings,
        fetch: JsonFetch,
        *,
        wall_s: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._fetch = fetch
        self._wall_s = wall_s
        self._metadata = KeptFetch(self._discover, monotonic)
        self._keys = KeptFetch(self._fetch_keys, monotonic)

    def login_address(self, state: str, nonce: str, verifier: str) -> str:
        """Returns the provider's address to which the browser goes."""
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect_uri,
            "scope": SCOPE,
            "state": state,
            "nonce": nonce,
            "code_challenge": create_s256_code_challenge(verifier),
            "code_challenge_method": "S256",
        }
        address = str(self._discovered()["authorization_endpoint"])
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}"

    def check_answer_issuer(self, issuer: str) -> None:
        """Checks the issuer that the answer names (RFC 9207), so that no other provider's code is taken."""
        promised = self._discovered().get("authorization_response_iss_parameter_supported") is True
        if (issuer or promised) and issuer != self.settings.issuer:
            raise OidcRefused("login.oidc_issuer", "iss of the answer")

    def claims(self, code: str, verifier: str, nonce: str) -> dict[str, Any]:
        """Returns the checked claims of the ID token that the provider gives for the code."""
        token = self._token(code, verifier)
        try:
            return self._checked(token, nonce, again=False)
        except UnknownKey:
            pass
        try:
            return self._checked(token, nonce, again=True)
        except UnknownKey:
            raise OidcRefused("login.oidc_signature", "an unknown key") from None

    def _checked(self, token: str, nonce: str, *, again: bool) -> dict[str, Any]:
        return checked_claims(
            token,
            self._key_set(again=again),
            issuer=self.settings.issuer,
            client_id=self.settings.client_id,
            nonce=nonce,
            now=lambda: int(self._wall_s()),
        )

    def _token(self, code: str, verifier: str) -> str:
        found, login = self._discovered(), None
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.settings.redirect_uri,
            "code_verifier": verifier,
        }
        secret = self.settings.client_secret
        methods = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if secret and "client_secret_basic" in methods:
            login = quote(self.settings.client_id, safe=""), quote(secret, safe="")
        else:
            fields |= {"client_id": self.settings.client_id}
            fields |= {"client_secret": secret} if secret else {}
        try:
            answer = self._fetch.post(str(found["token_endpoint"]), fields, login)
        except FetchFailed as exc:
            key = "login.oidc_code" if 400 <= exc.status < 500 else "login.oidc_away"
            raise OidcRefused(key, exc) from exc
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise OidcRefused("login.oidc_token", "no id_token")
        return token

    def _discovered(self) -> Mapping[str, Any]:
        return self._metadata.newer_than(_KEPT_S)

    def _discover(self) -> Mapping[str, Any]:
        found = self._fetched(get_well_known_url(self.settings.issuer, external=True))
        if found.get("issuer") != self.settings.issuer:
            raise OidcRefused("login.oidc_issuer", "issuer of the discovery document")
        for name in _ENDPOINTS:
            try:
                check_secure(str(found.get(name) or ""))
            except BadEndpoint as exc:
                raise OidcRefused("login.oidc_away", f"{name} {exc}") from exc
        return found

    def _key_set(self, *, again: bool) -> KeySet:
        return self._keys.newer_than(_KEYS_AGAIN_S if again else _KEPT_S)

    def _fetch_keys(self) -> KeySet:
        keys: Any = self._fetched(str(self._discovered()["jwks_uri"]))
        try:
            return KeySet.import_key_set(keys)
        except (JoseError, ValueError, TypeError, KeyError) as exc:
            raise OidcRefused("login.oidc_signature", "its keys cannot be read") from exc

    def _fetched(self, address: str) -> dict[str, Any]:
        try:
            return self._fetch.get(address)
        except FetchFailed as exc:
            raise OidcRefused("login.oidc_away", exc) from exc
