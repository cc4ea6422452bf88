"""Screens, and the looks in which each page is seen: language, theme and screen."""

from __future__ import annotations

from typing import Final

import pytest

DESK: Final = {"width": 1280, "height": 800}
PHONE: Final = {"width": 390, "height": 844}
_SOAK: Final = pytest.mark.soak
LOOKS: Final = pytest.mark.parametrize(
    ("language", "theme", "screen"),
    [
        ("en", "light", DESK),
        ("zh", "dark", PHONE),
        pytest.param("zh", "dark", DESK, marks=_SOAK),
        pytest.param("zh", "light", PHONE, marks=_SOAK),
        pytest.param("en", "dark", PHONE, marks=_SOAK),
    ],
)
"""The first two have each language, theme and screen; the others put them together anew."""
