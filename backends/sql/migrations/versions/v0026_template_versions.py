"""The templates that were applied, with author, time and what each changed (docs/templates.md)."""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

# Only ever added to: the greatest number is in force. `at` is epoch milliseconds by the database's clock.
_TABLE = """
CREATE TABLE template_versions (
    number  INTEGER PRIMARY KEY,
    name    TEXT    NOT NULL,
    author  TEXT    NOT NULL,
    at      BIGINT  NOT NULL,
    text    TEXT    NOT NULL,
    -- JSON: the texts of the files that it names, by those names.
    files   TEXT    NOT NULL,
    -- Against the version before, in unified form.
    diff    TEXT    NOT NULL
)"""


def upgrade() -> None:
    """Make the table."""
    op.get_bind().exec_driver_sql(_TABLE)
