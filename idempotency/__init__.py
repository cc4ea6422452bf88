"""One delivery, one send: the pre-filter (Redis) in front, the ledger (SQL) as the truth."""

from idempotency.opening import open_ledger, upgrade
from idempotency.redis_prefilter import open_prefilter

__all__ = ["open_ledger", "open_prefilter", "upgrade"]
