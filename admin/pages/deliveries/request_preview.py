"""The request of a delivery, as its adapter makes it from the kept payload. Nothing is sent.

Without a reveal every value of content and template is replaced before the adapter makes the request, so
that no encoding of it can show through. Secrets are masked always; the receiver, unless it was revealed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from admin.parts import ConsoleParts
from channels.channel import Account, Call
from channels.probe.redaction import Masks, Shown
from channels.registry import PROVIDERS, account_without_secrets, serves
from idempotency.lookups import KeptRow
from idempotency.search.store import SearchRow
from message.delivery import Delivery, Rendered, deliveries_of
from message.envelope import EnvelopeError, Notification, decode
from message.foreign_text import shown
from message.vocabulary import Lane
from policy.templates.active import templates_in_force
from policy.templates.loading import TemplateFileError
from policy.templates.variables import TemplateError
from policy.templates.versions import TemplateVersions
from tracing.masks import MASK, mask

log = structlog.get_logger(__name__)
_TOKEN: Final = "access-token-of-the-account"  # noqa: S105 - stands for the real one, and is masked


class RevealedParts(NamedTuple):
    """Parts of the message that this answer may show."""

    receiver: bool = False
    content: bool = False


class RequestPreview(NamedTuple):
    """The request, or why there is none."""

    account: str = ""
    shown: Shown | None = None
    body: str = ""
    problem: str = ""
    """In English, by the adapter or the template."""


class MessageShown(NamedTuple):
    """The message's own parts. Masked unless revealed."""

    receiver: str
    content: str


def preview(
    parts: ConsoleParts, row: SearchRow, kept: KeptRow, revealed: RevealedParts
) -> RequestPreview:
    """Returns the request that a worker would make for this delivery."""
    account = _account(parts, row)
    if account is None:
        return RequestPreview(problem="no account of this lane is in the configuration")
    try:
        delivery = _delivery(parts, row, kept, revealed, account.provider)
        request = PROVIDERS[account.provider].request(Call(account, (delivery,), token=_TOKEN))
    except (EnvelopeError, TemplateError, TemplateFileError) as exc:
        return RequestPreview(account.name, problem=shown(str(exc)))
    except Exception as exc:  # an adapter refuses a content in its own ways
        log.info("request_not_rebuilt", key=row.delivery_key, kind=type(exc).__name__)
        return RequestPreview(account.name, problem=type(exc).__name__)
    channel = row.lane.partition(".")[0]
    receiver = kept.receiver if revealed.receiver else mask(channel, kept.receiver)
    shown_request = Masks(account, [_TOKEN], kept.receiver, receiver).request(request)
    return RequestPreview(account.name, shown_request, _readable(shown_request.body))


def message_shown(row: SearchRow, kept: KeptRow, revealed: RevealedParts) -> MessageShown:
    """Returns receiver and content as JSON. Values are masked unless they were revealed."""
    notification = decode(kept.payload)
    fields = msgspec.to_builtins(
        {"template": notification.template, "content": notification.content}
    )
    if not revealed.content:
        fields = {name: _hidden(value, name) for name, value in fields.items()}
    some = {name: value for name, value in fields.items() if value is not None}
    channel = row.lane.partition(".")[0]
    receiver = kept.receiver if revealed.receiver else mask(channel, kept.receiver)
    content = _readable(some)
    if not revealed.receiver:
        content = content.replace(kept.receiver, receiver)
    return MessageShown(receiver, content)


def _account(parts: ConsoleParts, row: SearchRow) -> Account | None:
    tables, lane = parts.settings.accounts, Lane(*row.lane.split("."))
    names = [row.account] if row.account in tables else []
    names += [name for name, table in tables.items() if serves(str(table.get("provider")), lane)]
    return account_without_secrets(names[0], tables[names[0]]) if names and names[0] else None


def _delivery(
    parts: ConsoleParts, row: SearchRow, kept: KeptRow, revealed: RevealedParts, provider: str
) -> Delivery:
    notification = decode(kept.payload)
    versions = TemplateVersions(parts.databases.reads)
    rendered = templates_in_force(parts.settings, versions).templates.render(notification)
    rendered = rendered.of(provider) if rendered is not None else None
    if not revealed.content:
        notification = _without_content(notification)
        if rendered is not None:
            rendered = msgspec.convert(_hidden(msgspec.to_builtins(rendered), ""), Rendered)
    notification = msgspec.structs.replace(notification, receivers=[kept.receiver])
    (delivery,) = deliveries_of(notification, b"{}", expires_at=row.expires_at)
    return msgspec.structs.replace(
        delivery, key=row.delivery_key, attempt=max(row.attempt, 1), rendered=rendered
    )


def _without_content(notification: Notification) -> Notification:
    content, template = notification.content, notification.template
    if template is not None:
        params = _hidden(msgspec.to_builtins(template.params), "")
        template = msgspec.structs.replace(template, params=params)
    hidden = _hidden(content, "") if content is not None else None
    attributes = _hidden(notification.attributes, "")
    return msgspec.structs.replace(
        notification, content=hidden, template=template, attributes=attributes
    )


def _hidden(value: Any, name: str) -> Any:
    """Returns the value with every text and number in it masked; a template keeps its id."""
    if isinstance(value, dict):
        return {
            key: one if _is_name(name, key) else _hidden(one, key) for key, one in value.items()
        }
    if isinstance(value, list):
        return [_hidden(one, name) for one in value]
    if isinstance(value, str):
        return MASK
    return 0 if isinstance(value, int | float) and not isinstance(value, bool) else value


def _is_name(name: str, key: str) -> bool:
    return name == "template" and key == "id"


def _readable(body: Any, dumps: Callable[..., str] = json.dumps) -> str:
    if body is None or isinstance(body, str):
        return body or ""
    if isinstance(body, list) and body and isinstance(body[0], tuple):
        return "\n".join(f"{name} = {value}" for name, value in body)
    return dumps(body, ensure_ascii=False, indent=2)
