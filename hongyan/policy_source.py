"""The policy in force, for commands that also work without a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hongyan.terminal import err

if TYPE_CHECKING:
    from backends.settings import Settings
    from policy.schema import Policy


def policy_in_force(settings: Settings) -> Policy:
    """Returns the newest applied version if a database has one; else the file's policy."""
    from contextlib import closing

    from backends.settings import SettingsError
    from backends.sql.errors import SqlError, SqlNoSchema
    from hongyan.database import existing
    from policy.active import in_force
    from policy.loading import load_for
    from policy.versions import Versions

    try:
        with closing(existing(settings)) as database:
            now = in_force(settings, Versions(database))
    except (SettingsError, SqlNoSchema):  # no database yet: nothing was ever applied
        return load_for(settings)
    except SqlError as exc:
        err().print(f"the database does not answer, so this is the file's policy: {exc}")
        return load_for(settings)
    if now.file_differs:
        err().print(f"the file differs from {now.policy.version}, which is in force")
    return now.policy
