"""Finds the templates in force, and follows them: the newest applied version, else the file's."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import structlog

from backends.settings import Settings
from policy.templates.loading import TemplateFileError, file_of, load_source, parse
from policy.templates.page import TemplateSource
from policy.templates.provider_forms import Takers
from policy.templates.templates import Templates
from policy.templates.versions import TemplateVersion, TemplateVersions

log = structlog.get_logger(__name__)
_NONE: Final = TemplateSource("", {})


class TemplateVersionSource(Protocol):
    """The templates' versions in the database (policy/templates/versions.py)."""

    def newer_than(self, number: int) -> TemplateVersion | None:
        """Returns the version in force if its number is greater; else None."""
        ...


class ActiveTemplates(NamedTuple):
    """The templates in force and their source."""

    templates: Templates
    number: int
    """Number of the applied version; 0: none was ever applied."""
    source: TemplateSource
    file_differs: bool
    """Whether the file differs from the applied version and so has no effect."""


def templates_in_force(
    settings: Settings, versions: TemplateVersions, takers: Takers | None = None
) -> ActiveTemplates:
    """Returns the templates in force. Raises TemplateFileError, even for a file that has no effect, and
    SqlError."""
    path = file_of(settings)
    templates, source = load_source(path, takers) if path is not None else (Templates(), _NONE)
    newest = versions.newest()
    if newest is None:
        return ActiveTemplates(templates, 0, source, False)
    differs = path is not None and source != newest.source
    return ActiveTemplates(
        templates_of(newest, takers), newest.number, newest.source, file_differs=differs
    )


def templates_of(version: TemplateVersion, takers: Takers | None) -> Templates:
    """Returns the templates of an applied version. Raises TemplateFileError, whose problems name it."""
    return parse(version.name, version.source, takers, version=version.name)


class TemplateFollower:
    """Holds the templates of a running process. One thread calls `look`, any thread reads `current`."""

    def __init__(
        self, now: ActiveTemplates, versions: TemplateVersionSource | None, takers: Takers
    ) -> None:
        """`now` are those at the start; without `versions` they stay."""
        self.current = now.templates
        """The templates that are followed; replaced whole by `look`."""
        self.number = now.number
        """Number of the version that is followed; 0: the file's."""
        self._seen = now.number
        self._versions = versions
        self._takers = takers
        self._away = False

    def look(self) -> None:
        """Follows the newest version if there is a newer one than last time. Never raises: after any error
        the templates that are followed still hold."""
        if self._versions is None:
            return
        try:
            found = self._versions.newer_than(self._seen)
        except Exception as exc:  # any error: the templates that are followed still hold
            if not self._away:
                log.warning("templates_not_watched", cause=str(exc))
            self._away = True
            return
        self._away = False
        if found is not None:
            self._seen = found.number
            self._follow(found)

    def _follow(self, version: TemplateVersion) -> None:
        try:
            templates = templates_of(version, self._takers)
        except TemplateFileError as exc:
            log.error("templates_refused", version=version.name, cause=str(exc), keeps=self.number)
            return
        except Exception:  # a version that cannot be followed ends no process
            log.exception("templates_refused", version=version.name, keeps=self.number)
            return
        self.current, self.number = templates, version.number
        log.info("templates_adopted", version=version.name, templates=len(templates))
