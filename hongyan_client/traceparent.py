"""The W3C trace context that a record carries: the caller's, or that of OpenTelemetry's current span."""

from __future__ import annotations

import re
import sys
from typing import Any, Final

HEADER: Final = "traceparent"
TRACING: Final = "opentelemetry.trace"
"""The module that a program with spans has imported."""
_FORM: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def checked(traceparent: str) -> str | None:
    """Returns the context; None if it is not one of version 00, as readers ignore it too."""
    return traceparent if _FORM.fullmatch(traceparent) else None


def current() -> str | None:
    """Returns the context of the current span; None without one, or without OpenTelemetry.

    A span exists only where the program has imported OpenTelemetry, so nothing is imported here.
    """
    trace: Any = sys.modules.get(TRACING)
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
