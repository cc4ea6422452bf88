"""What an adapter can and cannot promise, in words: docs/channels.md is generated from these."""

from __future__ import annotations

import msgspec


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table; each text is one short sentence, `none` where there is nothing."""

    title: str
    """The provider's product, as its own pages name it."""
    idempotency: str = "none"
    """What the provider itself does with a repeat."""
    resolve: str = "none"
    """How an attempt in doubt is settled."""
    needs: str = ""
    """The switches, the provider's or ours, without which an attempt in doubt cannot be settled."""
    receipts: str = "none"
    """How DELIVERED or UNDELIVERED is learnt."""
    limits: str = ""
    """Receivers a call, rates, sizes."""
    recall: str = "none"
    """Whether a sent one can be taken back."""
    source: tuple[str, ...] = ()
    """Addresses of the documents that this was read from."""
