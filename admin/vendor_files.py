"""Scripts and styles of others: fetched from npm before a build, checked, unpacked beside our own.

`python -m admin.vendor_files` makes them; bootstrap.sh and the wheel's build call it, and a running console
never does. `vendor.json` pins each tarball by version and SHA-512. Only the standard library is imported,
since the build has nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

LOCK: Final = Path(__file__).with_name("vendor.json")
ROOT: Final = Path(__file__).resolve().parents[1]
REGISTRY: Final = "npm_config_registry"
"""Variable with another registry, as npm itself reads it."""
_TIMEOUT_S: Final = 60
_MOST_BYTES: Final = 16 << 20


class WrongAsset(Exception):
    """A tarball that cannot be had, or that is not the pinned one."""


def provide(root: Path = ROOT, product_only: bool = False) -> list[str]:
    """Makes the files that are missing below `root`. Returns the packages that were fetched. Raises
    WrongAsset. `product_only` leaves out those of the tests."""
    lock = json.loads(LOCK.read_text())
    registry = os.environ.get(REGISTRY) or lock["registry"]
    fetched = []
    for package in lock["packages"]:
        if product_only and not package["into"].startswith("admin/"):
            continue
        if not _is_there(package, root):
            _unpack(package, _tarball(package, registry), root)
            fetched.append(f"{package['name']} {package['version']}")
    return fetched


def checked(package: dict[str, Any], content: bytes) -> bytes:
    """Returns the tarball. Raises WrongAsset if it is not the pinned one."""
    found = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    if found != package["integrity"]:
        raise WrongAsset(
            f"{package['name']} {package['version']}: the tarball has {found}, vendor.json pins "
            f"{package['integrity']}"
        )
    return content


def _mark(package: dict[str, Any], root: Path) -> Path:
    folder: str = package["into"]
    return root / folder / f".{package['name']}"


def _is_there(package: dict[str, Any], root: Path) -> bool:
    mark = _mark(package, root)
    return mark.is_file() and mark.read_text() == package["integrity"]


def _tarball(package: dict[str, Any], registry: str) -> bytes:
    name, version = package["name"], package["version"]
    url = f"{registry.rstrip('/')}/{name}/-/{name}-{version}.tgz"
    if not url.startswith("https://"):
        raise WrongAsset(f"{url}: only https is asked")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - https alone
            content: bytes = answer.read(_MOST_BYTES)
    except (urllib.error.URLError, OSError) as exc:
        raise WrongAsset(f"{url}: {exc}") from exc
    return checked(package, content)


def _unpack(package: dict[str, Any], content: bytes, root: Path) -> None:
    """Writes the named files, then the mark: an interrupted call is repeated."""
    folder = root / package["into"]
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tarball:
        for source, target in package["files"].items():
            member = tarball.extractfile(f"package/{source}")
            if member is None:
                raise WrongAsset(f"{package['name']}: no file {source} in the tarball")
            (folder / target).write_bytes(member.read())
    _mark(package, root).write_text(package["integrity"])


def main() -> int:
    """Makes all files. Returns the exit code."""
    try:
        for name in provide():
            print(f"  fetched {name}", file=sys.stderr)
    except WrongAsset as exc:
        print(f"hongyan: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
