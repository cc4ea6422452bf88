"""Checks, before a notification is produced, its template and its parameters against templates.toml.

A template of the file is filled in as the worker does it. An id that the file does not have is refused on
channels whose providers have no templates, as the worker refuses it. On other channels it may be a
provider's id: a name close to one of the file's is a warning. Without a file nothing is refused.
"""

from __future__ import annotations

from message.delivery import Rendered
from message.envelope import EnvelopeError, Notification
from policy.templates.templates import PROVIDER_TEMPLATES, TemplateError, Templates

_CLOSE = "did you mean"


class TemplateCheck:
    """Renders notifications as a worker would, and collects warnings."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self.warnings: list[str] = []
        """One sentence each, without repeats."""

    def __call__(self, notification: Notification) -> Rendered | None:
        """Returns the filled-in template; None: it is sent as written. Raises EnvelopeError."""
        named = notification.template
        if named is None:
            return None
        if self._templates.get(named.id) is None:
            self._note_unknown(notification.channel, named.id)
            if not len(self._templates):
                return None
        try:
            return self._templates.render(notification)
        except TemplateError as exc:
            raise EnvelopeError(exc.code, "$.template", exc.detail) from exc

    def _note_unknown(self, channel: str, name: str) -> None:
        if not len(self._templates):
            if channel not in PROVIDER_TEMPLATES:
                self._warn(
                    f"there is no templates.toml here, so no template of channel {channel} was checked;"
                    " the worker sends nothing with a template that it does not know"
                )
            return
        try:
            self._templates.named(name)
        except TemplateError as exc:
            if channel in PROVIDER_TEMPLATES and _CLOSE in exc.detail:
                self._warn(f"{exc.detail}; it goes to the provider as an id of its own")

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)
