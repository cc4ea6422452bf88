"""The W3C trace context of OpenTelemetry's current span (`message.trace_context` has its form)."""

from __future__ import annotations

import sys
from typing import Any, Final

_TRACE: Final = "opentelemetry.trace"
CONTEXTS: Final = "opentelemetry.context"
_modules = sys.modules
_last: tuple[Any, str | None] = (None, None)
"""The last context and its header, as one value: any thread replaces it."""


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
