"""Build hook: wheel and sdist hold hongyan_client and the modules of the tree that it imports."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import (  # type: ignore[import-not-found]
    BuildHookInterface,
)

_PACKAGE = "hongyan_client"


class ClientHook(BuildHookInterface):  # type: ignore[misc]
    """Writes the files of the package into a folder, and names them to hatchling. An sdist has that folder
    already, so that a wheel can be built from it without the repository."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files."""
        here = Path(self.root)
        if (here / _PACKAGE).is_dir():
            build_data["force_include"][str(here / _PACKAGE)] = _PACKAGE
            return
        module = runpy.run_path(str(here / "vendoring.py"))
        made = Path(self.directory) / "made"
        shutil.rmtree(made, ignore_errors=True)
        for name, content in module["files"](here.parent):
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            build_data["force_include"][str(path)] = name

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling after it wrote the archive."""
        shutil.rmtree(Path(self.directory) / "made", ignore_errors=True)
