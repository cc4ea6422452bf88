"""Named templates: from a notification's template and parameters to what its channel sends.

A template of ours makes a content (`subject`, `text`, `html`, …: the keys of its channel), or names a
provider's template and fills its parameters; or one of the two for each of several providers, so that
another can take over. Any other id is the provider's own and passes through untouched, if the channel has
providers with templates; docs/templates.md.

    Templates.render(notification) ─▶ Rendered    one of ours, filled in
                                      None        sent as it was written
                                      TemplateError
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from message.delivery import Rendered
from message.envelope import Notification
from message.envelope import Template as Named
from message.foreign_text import shown_name
from policy.templates.parts import Part, filled
from policy.templates.sandbox import Broken, Overrun, bound
from policy.templates.variables import TemplateError, Variable, checked_all

__all__ = ["PROVIDER_TEMPLATES", "DeclaredTemplate", "Form", "TemplateError", "Templates"]

PROVIDER_TEMPLATES: Final = frozenset(
    {"sms", "wechat_official", "wechat_mini", "feishu", "webhook"}
)
"""Channels with a provider that knows templates by id; the adapter knows whether the account's does. The
others send contents only."""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """Input of a provider: one of `template_id` and `content`; nothing if both are empty."""

    template_id: str = ""
    """Id of the provider's template."""
    params: dict[str, Part] = {}
    """Parameters of the provider's template."""
    content: dict[str, Part] = {}

    @property
    def empty(self) -> bool:
        """Whether it gives nothing."""
        return not (self.template_id or self.content)

    def filled(self, values: Mapping[str, Any]) -> Rendered:
        """Returns the form filled with values (of `bound`). Raises Overrun, Broken."""
        if self.template_id:
            return Rendered(template=Named(self.template_id, filled(self.params, values)))
        return Rendered(content=filled(self.content, values) if self.content else None)


class DeclaredTemplate(Form, frozen=True, kw_only=True):
    """One template, compiled: a form for all providers, or some for single ones, or both."""

    name: str
    channel: str
    version: str = ""
    """First 12 hex digits of SHA-256 over its table in the file."""
    description: str = ""
    variables: dict[str, Variable] = {}
    providers: dict[str, Form] = {}
    """Forms of single providers, by name; an empty one means that there is nothing for it."""

    def of(self, provider: str) -> Form:
        """Returns this provider's form: its own, else the one for all."""
        return self.providers.get(provider, self)

    def render(self, params: Mapping[str, Any]) -> Rendered:
        """Returns the renderings for these parameters, for every provider. Raises TemplateError."""
        values = self._checked(params)
        rendered = self._filled(self, values)
        if not self.providers:
            return rendered
        forms = {name: self._filled(form, values, name) for name, form in self.providers.items()}
        return msgspec.structs.replace(rendered, providers=forms)

    def _filled(self, form: Form, values: Mapping[str, Any], provider: str = "") -> Rendered:
        """Renders one form. Each has bounds of its own, since only one of them is sent."""
        where = f"providers.{provider}: " if provider else ""
        try:
            return form.filled(bound(values))
        except Overrun as exc:
            raise self._error("template_too_large", f"{where}{exc}") from exc
        except Broken as exc:
            raise self._error("template_failed", f"{where}{exc}") from exc

    def parsed(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Returns parameters parsed from a command line's texts by type. Raises TemplateError."""
        return {
            name: self.variables[name].parsed(text, name) if name in self.variables else text
            for name, text in texts.items()
        }

    def _checked(self, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return checked_all(self.variables, params)
        except TemplateError as exc:
            raise self._error(exc.code, exc.detail) from exc

    def _error(self, code: str, detail: str) -> TemplateError:
        return TemplateError(code, f"template {self.name!r}: {detail}")


class Templates:
    """All templates of one file, by name. Immutable; safe from many threads."""

    def __init__(
        self, templates: Mapping[str, DeclaredTemplate] | None = None, version: str = ""
    ) -> None:
        self._templates = dict(templates or {})
        self.version = version
        """`file:` and 12 hex digits of SHA-256 over the file and those it names; empty: no file."""

    def __iter__(self) -> Iterator[DeclaredTemplate]:
        return iter(self._templates.values())

    def __len__(self) -> int:
        return len(self._templates)

    def get(self, name: str) -> DeclaredTemplate | None:
        """Returns the template of that name; None if it is not ours."""
        return self._templates.get(name)

    def named(self, name: str) -> DeclaredTemplate:
        """Returns the template of that name. Raises TemplateError if it is not ours."""
        template = self._templates.get(name)
        if template is None:
            raise TemplateError("template_unknown", self._unknown(name))
        return template

    def version_of(self, notification: Notification) -> str:
        """Returns the version of the notification's template; empty if that is not ours."""
        named = notification.template
        template = self._templates.get(named.id) if named is not None else None
        return template.version if template is not None else ""

    def render(self, notification: Notification) -> Rendered | None:
        """Returns the filled-in template; None: it is sent as written. Raises TemplateError."""
        named = notification.template
        if named is None:
            return None
        template = self._templates.get(named.id)
        if template is None:
            self._check_passes(notification.channel, named.id)
            return None
        if template.channel != notification.channel:
            raise TemplateError(
                "template_channel",
                f"template {named.id!r} is for {template.channel}, not for {notification.channel}",
            )
        return template.render(named.params)

    def _check_passes(self, channel: str, name: str) -> None:
        if channel not in PROVIDER_TEMPLATES:
            raise TemplateError(
                "template_unknown",
                f"{self._unknown(name)}, and no provider of channel {channel} has templates",
            )

    def _unknown(self, name: str) -> str:
        close = get_close_matches(name, self._templates, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        return f"there is no template {shown_name(name)!r}{hint}"
