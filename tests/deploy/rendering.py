"""Renders the overlays of deploy/kubernetes with kustomize into tests/deploy/rendered/, which tests read.

    python -m tests.deploy.rendering          needs kubectl or kustomize

Each file begins with a digest of its sources, so a change of a manifest without a new rendering is seen on
machines that have neither program.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.local.layout import REPOSITORY

KUBERNETES: Final = REPOSITORY / "deploy" / "kubernetes"
RENDERED: Final = Path(__file__).parent / "rendered"
OVERLAYS: Final = ("demo", "production")
_HEAD: Final = "# sources: "


def sources(overlay: str) -> Iterator[Path]:
    """Yields the files that an overlay is made from."""
    for folder in ("base", "components", f"overlays/{overlay}"):
        yield from sorted(path for path in (KUBERNETES / folder).rglob("*") if path.is_file())


def digest(overlay: str) -> str:
    """Returns the digest of an overlay's sources."""
    found = hashlib.sha256()
    for path in sources(overlay):
        name = str(path.relative_to(KUBERNETES))
        found.update(f"{name}\0{len(path.read_bytes())}\0".encode() + path.read_bytes())
    return found.hexdigest()


def program() -> list[str] | None:
    """Returns the command that renders a folder; None without kubectl and kustomize."""
    if found := shutil.which("kubectl"):
        return [found, "kustomize"]
    found = shutil.which("kustomize")
    return [found, "build"] if found else None


def render(overlay: str, command: list[str]) -> str:
    """Returns the manifests of an overlay as kustomize makes them. Raises CalledProcessError."""
    folder = KUBERNETES / "overlays" / overlay
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=True)
    return done.stdout


def kept(overlay: str) -> tuple[str, str]:
    """Returns the digest and the text of the rendering in this repository."""
    head, _, text = (RENDERED / f"{overlay}.yaml").read_text("utf-8").partition("\n")
    return head.removeprefix(_HEAD), text


@cache
def manifests(overlay: str) -> list[dict[str, Any]]:
    """Returns the rendered manifests, which nobody changes."""
    return list(yaml.safe_load_all(kept(overlay)[1]))


def main() -> int:
    """Renders every overlay. Returns 0, or 1 without a program that renders."""
    command = program()
    if command is None:
        print("install kubectl or kustomize: neither is on the PATH", file=sys.stderr)
        return 1
    RENDERED.mkdir(exist_ok=True)
    for overlay in OVERLAYS:
        text = f"{_HEAD}{digest(overlay)}\n{render(overlay, command)}"
        (RENDERED / f"{overlay}.yaml").write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
