"""Our side of TLS: the authorities we trust, and the state that connections to one host share."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Sequence
from functools import cache

import certifi


class CaBundles:
    """Contexts that verify chain and host name, TLS 1.2 or later.

    They trust the public certificate authorities, and those an account adds. Each file of added authorities
    has one context, made on first use: parsing all authorities costs milliseconds and half a megabyte.
    Nothing is taken from the environment.
    """

    def __init__(self, bundle: str = "", protocols: Sequence[str] = ()) -> None:
        """`protocols`: offered by ALPN."""
        self._bundle = bundle or certifi.where()
        self._protocols = list(protocols)
        self._making = threading.Lock()
        self._made = cache(self._make)

    def context(self, extra: str = "") -> ssl.SSLContext:
        """Returns the context that also trusts the authorities in the PEM file `extra`, if any.

        Raises OSError if that cannot be read. Many threads may ask at once; one makes it."""
        with self._making:
            return self._made(extra)

    def _make(self, extra: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.load_verify_locations(self._bundle)
        if extra:
            context.load_verify_locations(extra)
        if self._protocols:
            context.set_alpn_protocols(self._protocols)
        return context


class TlsPeer:
    """State of the connections to one host. Any thread may write `session`: all are equally good."""

    __slots__ = ("context", "host", "session")

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self.context = context
        self.host = host
        """The name or the address that the certificate must be for."""
        self.session: ssl.SSLSession | None = None
        """The newest session, which the next connection resumes. Written by `TlsWire`."""
