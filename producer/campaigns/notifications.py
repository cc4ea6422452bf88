"""From a row of a crowd file to the record of its notification, checked as `hongyan send` checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from message import envelope
from message.delivery import Rendered
from message.envelope import EnvelopeError, Notification
from message.keys import normalise_receiver
from message.vocabulary import lane_named
from policy.templates.templates import DeclaredTemplate, TemplateError, Templates
from producer.campaigns.contract import Campaign, CrowdColumns
from producer.campaigns.row_ids import row_id

RenderRow = Callable[[Notification], Rendered | None]
"""Fills the notification's template in. Raises EnvelopeError."""
CheckRow = Callable[[Notification, Rendered | None], None]
"""Raises EnvelopeError for a notification that cannot be sent."""
DETAIL_AT_MOST: Final = 300
"""Characters of a bad row's reason."""


class RowChecks(NamedTuple):
    """Checks of each row, with the templates in force when the run was opened."""

    templates: Templates
    render: RenderRow
    check: CheckRow


class RowNotification(NamedTuple):
    """A row's notification, and the bytes to produce."""

    notification: Notification
    value: bytes
    receiver: str
    """Normalised."""


class RowBuilder:
    """Makes notifications of one run."""

    def __init__(
        self, campaign: Campaign, run_id: str, checks: RowChecks, now_ms: Callable[[], int]
    ) -> None:
        lane = lane_named(campaign.lane)
        if lane is None:
            raise ValueError(f"there is no lane {campaign.lane!r}")
        self._run_id = run_id
        self._columns = campaign.columns
        self._checks = checks
        self._template = checks.templates.get(campaign.template)
        self._now_ms = now_ms
        limits = campaign.limits
        self._same: dict[str, Any] = {
            "v": envelope.VERSION,
            "channel": lane.channel,
            "kind": lane.kind,
            "account": limits.account,
            "ttl_ms": limits.ttl_ms,
            "attributes": {"campaign": campaign.id},
        }
        self._name = campaign.template

    def build(self, row: int, fields: Mapping[str, Any]) -> RowNotification:
        """Returns the notification of a row. Raises EnvelopeError."""
        try:
            return self._built(row, fields)
        except RecursionError as exc:
            raise EnvelopeError("not_json", "$", "the row is nested too deeply") from exc

    def _built(self, row: int, fields: Mapping[str, Any]) -> RowNotification:
        receiver = self._receiver(fields)
        params = params_of(fields, self._columns, self._template)
        biz_id = self._columns.biz_id
        filled = self._same | {
            "id": row_id(self._run_id, row),
            "biz_id": (_text(fields, biz_id, "$.biz_id") or None) if biz_id else None,
            "receivers": [receiver],
            "template": {"id": self._name, "params": params},
            "created_at": self._now_ms(),
        }
        try:
            value = msgspec.json.encode(filled)
        except (msgspec.MsgspecError, UnicodeEncodeError, TypeError) as exc:
            raise EnvelopeError("not_json", "$", f"cannot be written as JSON: {exc}") from exc
        notification = envelope.decode(value)
        self._checks.check(notification, self._checks.render(notification))
        named = normalise_receiver(notification.channel, receiver)
        return RowNotification(notification, value, named)

    def receiver(self, fields: Mapping[str, Any]) -> str:
        """Returns the normalised receiver of a row; checks nothing else. Raises EnvelopeError."""
        return normalise_receiver(self._same["channel"], self._receiver(fields))

    def _receiver(self, fields: Mapping[str, Any]) -> str:
        """Returns the receiver as the row has it. Raises EnvelopeError."""
        receiver = _text(fields, self._columns.receiver, "$.receivers[0]")
        if not receiver:
            raise EnvelopeError("no_receiver", "$.receivers[0]", "the row names no receiver")
        return receiver


def params_of(
    fields: Mapping[str, Any], columns: CrowdColumns, template: DeclaredTemplate | None
) -> dict[str, Any]:
    """Returns the template's parameters: constants, then the row's columns. An empty cell and a null give
    none. Texts become the variables' types. Raises EnvelopeError."""
    given: dict[str, Any] = dict(columns.constants)
    for variable, column in columns.variables.items():
        value = fields.get(column)
        if value is not None and value != "":
            given[variable] = value
    if template is None:
        return given
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    try:
        return given | template.parsed(texts)
    except TemplateError as exc:
        raise EnvelopeError(exc.code, "$.template", exc.detail) from exc


def _text(fields: Mapping[str, Any], column: str, path: str) -> str:
    """Returns a column's text; digits of JSON count as one. Raises EnvelopeError for another type."""
    value = fields.get(column)
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise EnvelopeError("wrong_type", path, f"column {column}: must be a text")
    return value.strip()
