"""The server's side of TLS, for https and for STARTTLS."""

from __future__ import annotations

import ssl


def server_context(file: str) -> ssl.SSLContext | None:
    """Returns the context of a PEM file with key and chain; None for no file. Raises OSError."""
    if not file:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context
