"""API keys of the gateway, and the requests that carried an idempotency key."""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0026"
branch_labels = None
depends_on = None

# Times are epoch milliseconds by the database's clock.
_STATEMENTS = (
    """CREATE TABLE api_keys (
        id          {text} PRIMARY KEY,
        name        {text} NOT NULL UNIQUE,
        -- Separated by commas.
        scopes      TEXT   NOT NULL,
        lanes       TEXT   NOT NULL,
        rate_per_s  DOUBLE PRECISION NOT NULL,
        burst       INTEGER NOT NULL,
        created_at  BIGINT NOT NULL,
        created_by  TEXT   NOT NULL,
        -- NULL: no end.
        expires_at  BIGINT,
        revoked_at  BIGINT
    )""",
    """CREATE TABLE api_key_secrets (
        prefix      {text} PRIMARY KEY,
        key_id      {text} NOT NULL,
        -- HMAC-SHA256 in hex; the secret itself is stored nowhere.
        digest      {text} NOT NULL,
        created_at  BIGINT NOT NULL,
        -- The end of a secret that was rotated; NULL: that of the key.
        ends_at     BIGINT
    )""",
    "CREATE INDEX api_key_secrets_by_key ON api_key_secrets (key_id)",
    """CREATE TABLE gateway_requests (
        key_id       {text}  NOT NULL,
        -- SHA-256 of the Idempotency-Key, in hex.
        name         {text}  NOT NULL,
        -- SHA-256 of path and body, in hex.
        body_digest  {text}  NOT NULL,
        -- The request that is at work; fences its later writes.
        token        BIGINT  NOT NULL,
        lease_until  BIGINT  NOT NULL,
        -- Of the first try: ids and created_at follow from it.
        made_at      BIGINT  NOT NULL,
        -- Of the answer; 0: there is none yet.
        status       INTEGER NOT NULL,
        answer       TEXT    NOT NULL,
        message_id   {text}  NOT NULL,
        expires_at   BIGINT  NOT NULL,
        PRIMARY KEY (key_id, name)
    )""",
    "CREATE INDEX gateway_requests_by_end ON gateway_requests (expires_at)",
    """CREATE INDEX gateway_requests_by_message ON gateway_requests (message_id)
        WHERE message_id <> ''""",
)


def upgrade() -> None:
    """Make the tables."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    kind = 'TEXT COLLATE "C"' if is_postgres else "TEXT"
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement.format(text=kind))
