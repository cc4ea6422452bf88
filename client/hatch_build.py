"""Build hook: the wheel holds hongyan_client and the modules of the tree that it imports."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import (  # type: ignore[import-not-found]
    BuildHookInterface,
)


class ClientHook(BuildHookInterface):  # type: ignore[misc]
    """Writes the files of the wheel into a folder, and names them to hatchling."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files."""
        here = Path(self.root)
        module = runpy.run_path(str(here / "vendoring.py"))
        made = Path(self.directory) / "made"
        shutil.rmtree(made, ignore_errors=True)
        for name, content in module["files"](here.parent):
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            build_data["force_include"][str(path)] = name

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling after it wrote the wheel."""
        shutil.rmtree(Path(self.directory) / "made", ignore_errors=True)
