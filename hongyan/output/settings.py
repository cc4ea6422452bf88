"""The rows of `hongyan config show`: each setting, its value for people, and its origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from backends.logs import HIDDEN, blacked_out
from backends.settings import LOGINS, SECRETS, Settings
from backends.url_passwords import hide_password

DEFAULT: Final = "default"
_SECRETS: Final = frozenset(".".join(path) for path in SECRETS)
_LOGINS: Final = frozenset(".".join(path) for path in LOGINS)
_NOT_KEYS: Final = ("base", "origins")
_PLAIN: Final = frozenset({"provider", "endpoint", "ca_file", "rate_per_s", "burst", "counted_as"})
"""Keys of an account that are no secret, whatever its provider."""


class SettingShown(NamedTuple):
    """One setting."""

    key: str
    value: Any
    """Masked if it is a secret."""
    origin: str
    """`default`, `hongyan.toml:12` or a variable."""

    @property
    def text(self) -> str:
        """The value as a person would write it."""
        if isinstance(self.value, list):
            return ", ".join(map(str, self.value)) or "-"
        if isinstance(self.value, bool):
            return str(self.value).lower()
        return "-" if self.value is None or self.value == "" else str(self.value)


class _Leaf(NamedTuple):
    """A setting without its origin."""

    key: str
    value: Any
    may_default: bool = False
    """Whether it has a default of its own, in a table that a person named."""


def settings_shown(settings: Settings) -> list[SettingShown]:
    """Returns every setting in the order of docs/configuration.md; accounts come last."""
    return [
        SettingShown(leaf.key, leaf.value, _origin(settings, leaf)) for leaf in _leaves_of(settings)
    ]


def _leaves_of(settings: Settings) -> Iterator[_Leaf]:
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, msgspec.Struct):
            for key in value.__struct_fields__:
                yield from _shown(f"{name}.{key}", getattr(value, key))
        elif name not in (*_NOT_KEYS, "accounts"):
            yield _Leaf(name, value)
    for account, table in settings.accounts.items():
        secrets = _secrets(table)
        for key, value in table.items():
            hidden = key in secrets or (secrets is _UNKNOWN and key not in _PLAIN)
            shown = HIDDEN if hidden else blacked_out(key, _plain(value))
            yield _Leaf(f"accounts.{account}.{key}", shown)


def _shown(key: str, value: Any, *, may_default: bool = False) -> Iterator[_Leaf]:
    """Yields the leaves of one setting; a table has several."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _shown(f"{key}.{name}", inner)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _shown(f"{key}.{name}", getattr(value, name), may_default=True)
    elif key in _SECRETS and value:
        yield _Leaf(key, HIDDEN)
    else:
        text = hide_password(value) if key in _LOGINS else value
        yield _Leaf(key, blacked_out(key, _plain(text)), may_default)


def _plain(value: Any) -> Any:
    """Returns a text of the file as a text that any encoder knows."""
    return str(value) if isinstance(value, str) else value


def _origin(settings: Settings, leaf: _Leaf) -> str:
    """Returns the origin of the key, else of the inner table around it. The line of a table of the top
    level gives none of its keys, nor does that of a table whose keys have defaults."""
    around = leaf.key
    while "." in around and not leaf.may_default:
        if around in settings.origins:
            return settings.origins[around]
        around = around.rpartition(".")[0]
    return settings.origins.get(leaf.key, DEFAULT)


_UNKNOWN: Final[frozenset[str]] = frozenset({"?"})


def _secrets(table: Mapping[str, Any]) -> frozenset[str]:
    """Returns the secret options of the account's provider; _UNKNOWN if they cannot be found out."""
    try:
        from channels.registry import PROVIDERS, secret_options
    except ImportError:
        return _UNKNOWN
    channel = PROVIDERS.get(str(table.get("provider", "")))
    return secret_options(channel.options) if channel is not None else _UNKNOWN
