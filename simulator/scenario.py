"""Scenarios: all options of a simulator in one TOML file (docs/simulator.md)."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from simulator.options import SimulatorOptions


class BadScenario(ValueError):
    """A file that is no scenario; the text names the place and the fault."""


def load(path: str | Path) -> SimulatorOptions:
    """Returns the file's options; its keys are those of SimulatorOptions. Raises BadScenario, OSError."""
    try:
        data = tomllib.loads(Path(path).read_text("utf-8"))
        return msgspec.convert(data, SimulatorOptions)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise BadScenario(f"{path}: {exc}") from exc
    except msgspec.ValidationError as exc:
        text, _, where = str(exc).partition(" - at `$")
        key = where.rstrip("`").lstrip(".")
        fault = text.replace("`", "")
        raise BadScenario(f"{path}: {key + ': ' if key else ''}{fault}") from exc
