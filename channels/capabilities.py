"""Capabilities of an adapter, in words: docs/channels.md is generated from them."""

from __future__ import annotations

import msgspec


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table; each text is one short sentence, `none` where there is nothing."""

    title: str
    """The provider's product, as its own pages name it."""
    idempotency: str = "none"
    """The provider's own treatment of a repeat."""
    resolve: str = "none"
    """The way in which an attempt in doubt is settled."""
    needs: str = ""
    """The switches, the provider's or ours, without which an attempt in doubt cannot be settled."""
    receipts: str = "none"
    """The source of DELIVERED and UNDELIVERED."""
    limits: str = ""
    """Receivers a call, rates, sizes."""
    recall: str = "none"
    """The provider's way of taking a sent message back."""
    source: tuple[str, ...] = ()
    """Addresses of the documents behind this row."""
