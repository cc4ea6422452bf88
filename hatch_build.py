"""Build hook: the wheel and the sdist carry the console's scripts of others."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import (  # type: ignore[import-not-found]
    BuildHookInterface,
)


class VendorHook(BuildHookInterface):  # type: ignore[misc]
    """Fetches the files that are not there yet; an editable install needs none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files."""
        if version == "editable":
            return
        root = Path(self.root)
        module = runpy.run_path(str(root / "admin" / "vendor_files.py"))
        module["provide"](root, product_only=True)
