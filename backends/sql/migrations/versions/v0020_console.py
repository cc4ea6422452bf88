"""People of the console, their sessions, and the audit that nobody changes."""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

# Times are epoch milliseconds. Tokens are stored as SHA-256 in hex, never as themselves.
_STATEMENTS = (
    """CREATE TABLE console_users (
        id             {number},
        name           {text} NOT NULL UNIQUE,
        -- Argon2; empty: the person comes by OIDC alone.
        password_hash  TEXT   NOT NULL,
        -- `ISSUER SUBJECT`; NULL for a local user.
        oidc_subject   {text} UNIQUE,
        -- ACTIVE | DISABLED
        state          {text} NOT NULL,
        language       {text} NOT NULL,
        theme          {text} NOT NULL,
        created_at     BIGINT NOT NULL,
        created_by     TEXT   NOT NULL
    )""",
    """CREATE TABLE console_roles (
        user_id  BIGINT NOT NULL,
        role     {text} NOT NULL,
        -- Patterns of lanes, separated by commas.
        lanes    TEXT   NOT NULL,
        PRIMARY KEY (user_id, role)
    )""",
    """CREATE TABLE console_sessions (
        token_hash  {text} PRIMARY KEY,
        user_id     BIGINT NOT NULL,
        created_at  BIGINT NOT NULL,
        seen_at     BIGINT NOT NULL,
        ends_at     BIGINT NOT NULL,
        address     TEXT   NOT NULL
    )""",
    "CREATE INDEX console_sessions_by_user ON console_sessions (user_id)",
    """CREATE TABLE console_attempts (
        -- `name:NAME` or `address:ADDRESS`
        subject   {text} PRIMARY KEY,
        failures  INTEGER NOT NULL,
        since     BIGINT  NOT NULL
    )""",
    "CREATE INDEX console_attempts_by_time ON console_attempts (since)",
    """CREATE TABLE console_oidc_logins (
        token_hash  {text} PRIMARY KEY,
        state       {text} NOT NULL,
        nonce       {text} NOT NULL,
        verifier    {text} NOT NULL,
        next        TEXT   NOT NULL,
        ends_at     BIGINT NOT NULL
    )""",
    """CREATE TABLE console_audit (
        number    BIGINT NOT NULL PRIMARY KEY,
        at        BIGINT NOT NULL,
        person    TEXT   NOT NULL,
        action    {text} NOT NULL,
        subject   TEXT   NOT NULL,
        lane      {text} NOT NULL,
        reason    TEXT   NOT NULL,
        address   TEXT   NOT NULL,
        -- Over this row and `digest` of the row before.
        digest    {text} NOT NULL
    )""",
    # The number and digest of the last row, signed: rows removed from the end are missed by it.
    """CREATE TABLE console_audit_head (
        id      INTEGER NOT NULL PRIMARY KEY,
        number  BIGINT  NOT NULL,
        digest  {text}  NOT NULL,
        seal    {text}  NOT NULL
    )""",
    "INSERT INTO console_audit_head (id, number, digest, seal) VALUES (1, 0, '', '')",
)
_POSTGRES = (
    """CREATE FUNCTION console_audit_refuses() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'console_audit is append-only';
    END $$""",
    """CREATE TRIGGER console_audit_rows BEFORE UPDATE OR DELETE ON console_audit
       FOR EACH ROW EXECUTE FUNCTION console_audit_refuses()""",
    """CREATE TRIGGER console_audit_table BEFORE TRUNCATE ON console_audit
       FOR EACH STATEMENT EXECUTE FUNCTION console_audit_refuses()""",
)
_SQLITE = (
    """CREATE TRIGGER console_audit_update BEFORE UPDATE ON console_audit
       BEGIN SELECT RAISE(ABORT, 'console_audit is append-only'); END""",
    """CREATE TRIGGER console_audit_delete BEFORE DELETE ON console_audit
       BEGIN SELECT RAISE(ABORT, 'console_audit is append-only'); END""",
)


def upgrade() -> None:
    """Tables beside the others, and triggers that keep the audit as it is."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    names = {
        "text": 'TEXT COLLATE "C"' if is_postgres else "TEXT",
        "number": (
            "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
            if is_postgres
            else "INTEGER PRIMARY KEY"
        ),
    }
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement.format(**names))
    for statement in _POSTGRES if is_postgres else _SQLITE:
        op.get_bind().exec_driver_sql(statement)
