"""A sign-in provider whose answers a test bends: discovery, keys, tokens over HTTP on this machine."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "console", "a secret of the tests"
_STOP_S = 0.05
"""Within this time the server notices that it shall stop."""


@cache
def _key() -> RSAKey:
    """The key of every provider: to make one takes longer than most tests."""
    return RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"})


class BentProvider:
    """Gives one ID token for each code. `claims` and `bend` change what it gives."""

    def __init__(self) -> None:
        self.key = _key()
        self.published = [self.key]
        self.claims: dict[str, Any] = {
            "sub": "s-1",
            "email": "bo@example.com",
            "email_verified": True,
        }
        self.header: dict[str, Any] = {"alg": "RS256", "kid": "k1"}
        self.metadata: dict[str, Any] = {}
        self.nonce = ""
        self.token = ""
        """A token in place of the signed one."""
        self.asked: list[dict[str, str]] = []
        """Forms that the token endpoint got."""
        self.status = 200
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(_STOP_S,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, form: dict[str, str] | None) -> dict[str, Any]:
        if path.endswith("/.well-known/openid-configuration"):
            return {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/auth",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            } | self.metadata
        if path == "/keys":
            return {"keys": [key.as_dict(private=False) for key in self.published]}
        self.asked.append(form or {})
        return {
            "access_token": "a",
            "token_type": "Bearer",
            "id_token": self.token or self._signed(),
        }

    def _signed(self) -> str:
        now = int(time.time())
        standard = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300}
        claims = standard | {"nonce": self.nonce} | self.claims
        if self.header["alg"] == "HS256":
            return _signed_with(self.key.as_pem(private=False), self.header, claims)
        return jwt.encode(self.header, claims, self.key)


def _signed_with(secret: bytes, header: dict[str, Any], claims: dict[str, Any]) -> str:
    """A token whose shared key is the public one: libraries refuse to make it."""

    def coded(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).decode().rstrip("=")

    signed = ".".join(coded(json.dumps(part).encode()) for part in (header, claims))
    return f"{signed}.{coded(hmac.digest(secret, signed.encode(), 'sha256'))}"


def _handler(provider: BentProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._reply(form | {"login": self.headers.get("authorization", "")})

        def _reply(self, form: dict[str, str] | None) -> None:
            path = urlsplit(self.path).path
            status = provider.status if path == "/token" else 200
            content = json.dumps(provider.answer(path, form)).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    return Handler
