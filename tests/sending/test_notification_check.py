"""What cannot be written as JSON is refused with a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from message.envelope import EnvelopeError
from sending.notification_check import prepared


def test_a_notification_that_is_nested_too_deeply_is_refused() -> None:
    value: Any = "a"
    for _ in range(5_000):
        value = [value]
    template = {"id": "SMS_1", "params": {"x": value}}
    fields = {"channel": "sms", "kind": "notice", "receivers": ["+8613800000001"]}
    with pytest.raises(EnvelopeError, match="nested too deeply"):
        prepared(fields | {"template": template}, now_ms=1)
