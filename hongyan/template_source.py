"""The templates in force, for commands that also work without a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hongyan.terminal import err

if TYPE_CHECKING:
    from backends.settings import Settings
    from policy.templates.provider_forms import Takers
    from policy.templates.templates import Templates


def templates_now(settings: Settings, takers: Takers | None = None) -> Templates:
    """Returns the newest applied version if a database has one; else the file's templates."""
    from contextlib import closing

    from backends.settings import SettingsError
    from backends.sql.errors import SqlError, SqlNoSchema
    from hongyan.database import existing
    from policy.templates.active import templates_in_force
    from policy.templates.loading import load_for
    from policy.templates.versions import TemplateVersions

    try:
        with closing(existing(settings)) as database:
            now = templates_in_force(settings, TemplateVersions(database), takers)
    except (SettingsError, SqlNoSchema):  # no database yet: nothing was ever applied
        return load_for(settings, takers)
    except SqlError as exc:
        err().print(f"the database does not answer, so these are the file's templates: {exc}")
        return load_for(settings, takers)
    if now.file_differs:
        err().print(f"templates.toml differs from {now.templates.version}, which is in force")
    return now.templates
