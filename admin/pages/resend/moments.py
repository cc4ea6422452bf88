"""Times as people type them: `2h` ago, `2026-09-23 14:03` in UTC, or epoch milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from admin.web.forms import WrongForm

_AGO: Final = re.compile(r"(\d{1,6})\s*([smhd])")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH_MS: Final = re.compile(r"\d{12,14}")


def moment_ms(text: str, now: int, field: str) -> int:
    """Returns epoch milliseconds; 0 for no text. Raises WrongForm."""
    written = text.strip()
    if not written:
        return 0
    if ago := _AGO.fullmatch(written.lower()):
        return max(now - int(ago[1]) * _UNIT_MS[ago[2]], 1)
    if _EPOCH_MS.fullmatch(written):
        return int(written)
    try:
        found = datetime.fromisoformat(written)
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        raise WrongForm("resend.bad_moment", field, text=written[:40]) from None
