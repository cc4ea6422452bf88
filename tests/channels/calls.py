"""What channel tests are fed with."""

from typing import Any

from channels.channel import Account, Call
from channels.providers.webhook.adapter import WebhookOptions
from channels.secret import Secret
from message.delivery import Delivery, deliveries_of
from message.envelope import Notification, Template


def delivery(
    receiver: str = "user-1",
    *,
    content: dict[str, Any] | None = None,
    template: Template | None = None,
    attempt: int = 1,
    message_id: str = "m-1",
) -> Delivery:
    """One webhook delivery."""
    if template is None and content is None:
        content = {"text": "你好"}
    notification = Notification(
        id=message_id,
        biz_id="order-1001",
        channel="webhook",
        kind="notice",
        receivers=[receiver],
        content=content,
        template=template,
        created_at=1,
    )
    (one,) = deliveries_of(notification, b"", expires_at=2)
    one.attempt = attempt
    return one


def account(endpoint: str = "https://provider.example/hook", **options: Any) -> Account:
    """A webhook account."""
    common = {key: options.pop(key) for key in ("ca_file",) if key in options}
    token = options.pop("token", None)
    return Account(
        "main",
        "webhook",
        endpoint,
        WebhookOptions(token=Secret(token) if isinstance(token, str) else token, **options),
        **common,
    )


def call(**fields: Any) -> Call:
    """A call with one delivery."""
    return Call(account(), (delivery(**fields),))
