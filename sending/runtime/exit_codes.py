"""Exit codes of the processes of a fleet."""

from __future__ import annotations

from typing import Final

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
