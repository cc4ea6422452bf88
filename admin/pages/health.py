"""`/healthz` and `/readyz` beside the pages; metrics are at `console.health_address`."""

from __future__ import annotations

from litestar import Response, get

from admin.access import for_everybody
from admin.web.given import GivenParts
from idempotency.error_mapping import errors
from idempotency.ledger import LedgerError


@get("/healthz", opt=for_everybody(), sync_to_thread=False)
def healthz() -> Response[str]:
    """The process answers."""
    return Response("ok", media_type="text/plain")


@get("/readyz", opt=for_everybody(), sync_to_thread=True)
def readyz(parts: GivenParts) -> Response[str]:
    """The ledger answers, too. The cause is in the log alone: anybody may ask."""
    try:
        with errors(), parts.databases.primary.reading() as connection:
            parts.databases.clock(connection)
    except LedgerError:
        return Response("database away", status_code=503, media_type="text/plain")
    return Response("ready", media_type="text/plain")


HANDLERS = [healthz, readyz]
