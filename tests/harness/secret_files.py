"""Accounts as hongyan.toml takes them: their secrets in files beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from msgspec.structs import fields

from channels.registry import PROVIDERS
from channels.secret import Secret


def secrets_aside(folder: Path, name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The account's table with `KEY_file` where a secret stood."""
    channel = PROVIDERS.get(str(table.get("provider")))
    options = fields(channel.options) if channel is not None else ()
    secret = {f.encode_name for f in options if Secret in (f.type, *get_args(f.type))}
    kept = dict(table)
    for key in secret & table.keys():
        file = folder / f"{name}.{key}"
        file.write_text(str(kept.pop(key)))
        kept[f"{key}_file"] = file.name
    return kept
