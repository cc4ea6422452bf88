"""The common part of the simulated SMS providers: their form of numbers, and China's clocks."""

from __future__ import annotations

import re
from typing import Final

_E164 = re.compile(r"\+[1-9][0-9]{6,14}", re.ASCII)
_MAINLAND = re.compile(r"\+861[3-9][0-9]{9}", re.ASCII)
CHINA_MS: Final = 8 * 3_600_000
"""Time by which China's clocks are ahead of UTC."""


def is_number(text: str) -> bool:
    """Returns whether it is a number in E.164, and a mobile one if it is of mainland China."""
    return bool(_MAINLAND.fullmatch(text) if text.startswith("+86") else _E164.fullmatch(text))
