"""Ids need no coordination, and sort by time."""

import re
import subprocess
import sys
import uuid

from deploy.local.layout import REPOSITORY
from message.ids import new_id, new_token


def test_ids_sort_by_the_time_they_were_made() -> None:
    ids = [new_id() for _ in range(5_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_an_id_is_a_version_seven_uuid_in_hex() -> None:
    made = new_id()
    assert re.fullmatch(r"[0-9a-f]{32}", made)
    assert uuid.UUID(made).version == 7


def test_tokens_fit_a_signed_bigint_and_are_never_zero() -> None:
    tokens = {new_token() for _ in range(1_000)}
    assert len(tokens) == 1_000
    assert all(0 < token < 2**63 for token in tokens)


_FORKED = """
import os
from message.ids import new_id, new_token
new_id(), new_token()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, f"{new_token()} {new_id()}".encode())
    os._exit(0)
os.wait()
print(new_token(), new_id(), os.read(reader, 100).decode())
"""


def test_a_process_and_its_fork_draw_different_tokens_and_ids() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORKED], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    token, drawn, forked_token, forked_id = done.stdout.split()
    assert token != forked_token
    assert drawn != forked_id
