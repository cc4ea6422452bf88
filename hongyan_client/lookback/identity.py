"""The three names of one transaction, the same in messages, checks and barriers."""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NamedTuple

from hongyan_client.lookback.errors import BadIdentity
from message.lookback import CommitRecord, LookbackMessageError, encode

_SEPARATOR: Final = "\x1f"


class TransactionRef(NamedTuple):
    """A business transaction: its type, the business's own id, and the id of this try."""

    biz_type: str
    biz_id: str
    tx_id: str

    @property
    def digest(self) -> str:
        """SHA-256 over the names in hex: the same in each database, whatever its collation."""
        return sha256(_SEPARATOR.join(self).encode()).hexdigest()


def checked(ref: TransactionRef) -> TransactionRef:
    """Returns the names if records may carry them. Raises BadIdentity."""
    try:
        encode(CommitRecord(biz_type=ref.biz_type, biz_id=ref.biz_id, tx_id=ref.tx_id))
    except LookbackMessageError as exc:
        raise BadIdentity(f"{exc.path.lstrip('$.') or 'the transaction'}: {exc.detail}") from exc
    return ref
