"""The W3C trace context that a record carries: the caller's, or that of OpenTelemetry's current span."""

from __future__ import annotations

import re
import sys
from typing import Any, Final

HEADER: Final = "traceparent"
_TRACE: Final = "opentelemetry.trace"
CONTEXTS: Final = "opentelemetry.context"
_modules = sys.modules
_last: tuple[Any, str | None] = (None, None)
"""The last context and its header, as one value: any thread replaces it."""
_FORM: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def checked(traceparent: str) -> str | None:
    """Returns the context; None if it is not one of version 00, as readers ignore it too."""
    return traceparent if _FORM.fullmatch(traceparent) else None


def current() -> str | None:
    """Returns the context of the current span; None without one, or without OpenTelemetry.

    A span exists only where the program has imported OpenTelemetry, so nothing is imported here. Contexts
    never change, so the header of the last one is kept: a batch mostly has one for all its records.
    """
    global _last
    contexts: Any = _modules.get(CONTEXTS)
    if contexts is None:
        return None
    context = contexts.get_current()
    known, header = _last
    if context is not known:
        header = _header_of(context)
        _last = (context, header)
    return header


def _header_of(context: Any) -> str | None:
    trace: Any = sys.modules.get(_TRACE)
    if trace is None:
        return None
    found = trace.get_current_span(context).get_span_context()
    if not found.is_valid:
        return None
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}"
