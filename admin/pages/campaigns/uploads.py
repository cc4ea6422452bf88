"""Uploaded crowd files: kept in `campaigns.folder` under their SHA-256, readable by our processes alone.

A file that was uploaded twice is one file. Its name at the browser is shown and never used as a path.
"""

from __future__ import annotations

import os
import secrets
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Final

from admin.web.forms import SentFile, WrongForm
from backends.settings import Settings

_SUFFIXES: Final = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson")
_MIB: Final = 1 << 20


def kept_upload(file: SentFile, settings: Settings) -> Path:
    """Returns the path of the file, written to the disk. Raises WrongForm."""
    most = settings.campaigns.upload_mb
    if len(file.content) > most * _MIB:
        raise WrongForm("campaigns.too_large", "file", most=most)
    suffix = _suffix(file.name)
    folder = Path(settings.base) / settings.campaigns.folder
    kept = folder / f"{sha256(file.content).hexdigest()}{suffix}"
    try:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        if not kept.is_file():
            _write(kept, file.content)
    except OSError as exc:
        why = exc.strerror or str(exc)
        raise WrongForm("campaigns.not_kept", "file", folder=str(folder), why=why) from exc
    return kept.absolute()


def _suffix(name: str) -> str:
    """Returns the ending that tells the format. Raises WrongForm."""
    lower = PurePath(name.replace("\\", "/")).name.lower()
    packed = ".gz" if lower.endswith(".gz") else ""
    found = PurePath(lower.removesuffix(".gz")).suffix
    if found not in _SUFFIXES:
        raise WrongForm("campaigns.bad_name", "file", name=name[:80])
    return found + packed


def _write(kept: Path, content: bytes) -> None:
    """Writes the file whole: a reader sees all of it or nothing."""
    draft = kept.with_name(f".{kept.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as target:
            os.fchmod(target.fileno(), 0o640)
            target.write(content)
            target.flush()
            os.fsync(target.fileno())
        draft.replace(kept)
    finally:
        draft.unlink(missing_ok=True)
