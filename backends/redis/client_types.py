"""Finds foreign keys of a wrong type and moves them aside, in one script. Counts the items of a list.

Redis refuses every command on such a key (WRONGTYPE), so its users fail until it is gone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from backends.redis.client import RedisBacked, guarded
from backends.settings import RedisSettings

_SCRIPT: Final = """
local moved = {}
for i, key in ipairs(KEYS) do
    local found = redis.call('TYPE', key)['ok']
    if found ~= 'none' and found ~= ARGV[i + 1] then
        redis.call('RENAME', key, key .. ARGV[1])
        moved[#moved + 1] = {key, found, ARGV[i + 1]}
    end
end
return moved"""


class Moved(NamedTuple):
    """One key that was moved."""

    key: str
    found: str
    """The type it had, as Redis names it."""
    wanted: str
    to: str


class KeyTypes(RedisBacked):
    """One round trip per call; thread-safe."""

    def __init__(self, settings: RedisSettings, wanted: Mapping[str, str]) -> None:
        """`wanted` has each key's type. Raises ValueError for a URL that cannot be read."""
        super().__init__(settings)
        self._script = self._client.register_script(_SCRIPT)
        self._wanted = dict(wanted)

    def mend(self) -> list[Moved]:
        """Renames every key of another type; its name gets a suffix with the time. Raises RedisAway."""
        suffix = f":set-aside-{int(time.time())}"
        keys, types = list(self._wanted), list(self._wanted.values())
        rows = guarded(self._script, keys, [suffix, *types])
        texts = ([part.decode("utf-8", "replace") for part in row] for row in rows)
        return [Moved(key, found, wanted, key + suffix) for key, found, wanted in texts]

    def length(self, key: str) -> int:
        """Returns the number of items of a list, 0 if it is not there. Raises RedisAway."""
        return int(guarded(self._client.llen, key))
