"""The part that a business process installs: typed client, spool, outbox and fenced check.

Names are loaded at their first use, so that `import hongyan_client` costs a few milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hongyan_client.async_client import AsyncClient as AsyncClient
    from hongyan_client.client import Client as Client
    from hongyan_client.client import NotSentItem as NotSentItem
    from hongyan_client.client import SendSummary as SendSummary
    from hongyan_client.composition import Composition as Composition
    from hongyan_client.composition import compose as compose
    from hongyan_client.errors import BufferFull as BufferFull
    from hongyan_client.errors import ClientClosed as ClientClosed
    from hongyan_client.errors import ClientError as ClientError
    from hongyan_client.errors import NotDelivered as NotDelivered
    from hongyan_client.errors import SendFailed as SendFailed
    from hongyan_client.errors import SendInDoubt as SendInDoubt
    from hongyan_client.errors import WrongNotification as WrongNotification
    from hongyan_client.errors import WrongProperties as WrongProperties
    from hongyan_client.metrics import ClientFigures as ClientFigures
    from hongyan_client.options import ClientOptions as ClientOptions
    from hongyan_client.outcome_reader import OutcomeReader as OutcomeReader
    from hongyan_client.publisher import BufferLimits as BufferLimits
    from hongyan_client.publisher import Publisher as Publisher
    from hongyan_client.records import Acknowledged as Acknowledged
    from hongyan_client.records import Record as Record
    from hongyan_client.sends.pending_send import SentNotification as SentNotification
    from message.envelope import Notification as Notification
    from message.envelope import Template as Template
    from message.outcome_event import OutcomeEvent as OutcomeEvent
    from message.states import State as State

_HOMES = {
    "hongyan_client.async_client": ("AsyncClient",),
    "hongyan_client.client": ("Client", "NotSentItem", "SendSummary"),
    "hongyan_client.composition": ("Composition", "compose"),
    "hongyan_client.errors": (
        *("BufferFull", "ClientClosed", "ClientError", "SendInDoubt", "NotDelivered", "SendFailed"),
        *("WrongNotification", "WrongProperties"),
    ),
    "hongyan_client.metrics": ("ClientFigures",),
    "hongyan_client.options": ("ClientOptions",),
    "hongyan_client.outcome_reader": ("OutcomeReader",),
    "hongyan_client.sends.pending_send": ("SentNotification",),
    "hongyan_client.publisher": ("BufferLimits", "Publisher"),
    "hongyan_client.records": ("Acknowledged", "Record"),
    "message.envelope": ("Notification", "Template"),
    "message.outcome_event": ("OutcomeEvent",),
    "message.states": ("State",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
