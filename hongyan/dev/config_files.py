"""The files of an environment's folder. Existing ones stay; only marked addresses are set anew.

A line of hongyan.toml that ends in `# set at each start` holds an address that changes with each start.
All its other lines, and the other files, belong to the person who edits them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MARK: Final = "# set at each start"
SECRET_FILE: Final = "simulator-secret"  # noqa: S105 (the file's name)
DATABASE_FILE: Final = "database-url"
"""Holds the database's address: it may have a password, which hongyan.toml must not hold."""
CONTROL_FILE: Final = "simulator-address"
"""In a stack's folder: the address of the simulator's page, report and control."""
FILES: Final = Path(__file__).parent / "files"
CONFIG: Final = "hongyan.toml"
_OTHERS: Final = ("policy.toml", "templates.toml")
_TABLE: Final = re.compile(r"\s*\[([^\[\]]+)\]")
_VALUE: Final = re.compile(rf"\s*(\w+)\s*=.*{MARK}\s*$")
_VALUE_WIDTH: Final = 40

Addresses = Mapping[tuple[str, str], str]
"""Table and key of hongyan.toml to the address."""


def write_files(folder: Path, database: str, addresses: Addresses) -> Path:
    """Writes the missing files, the database's address, and the others into hongyan.toml. Returns its path.
    Raises OSError."""
    for name in (CONFIG, *_OTHERS):
        if not (folder / name).exists():
            (folder / name).write_text((FILES / name).read_text("utf-8"), "utf-8")
    (folder / SECRET_FILE).write_text("simulator-secret\n")
    (folder / DATABASE_FILE).write_text(f"{database}\n")
    config = folder / CONFIG
    config.write_text(with_addresses(config.read_text("utf-8"), addresses), "utf-8")
    return config


def with_addresses(text: str, addresses: Addresses) -> str:
    """Returns the text of hongyan.toml with the addresses in its marked lines."""
    table, lines = "", []
    for line in text.splitlines():
        if found := _TABLE.match(line):
            table = found[1].strip()
        elif (found := _VALUE.match(line)) and (table, found[1]) in addresses:
            value = f"{found[1]} = {json.dumps(addresses[table, found[1]])}"
            line = f"{value:<{_VALUE_WIDTH}} {MARK}"
        lines.append(line)
    return "\n".join(lines) + "\n"
