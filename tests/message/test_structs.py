"""Structs that were described are read by many threads at once; the adapters are, before there are any."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec

from channels.engine import Engine
from channels.registry import PROVIDERS
from message.structs import describe_structs

RACE = """
import sys, threading, types
import msgspec
from message.structs import describe_structs

SOURCE = '''
import msgspec
class Inner(msgspec.Struct):
    a: "int" = 0
    b: "list[dict[str, int]] | None" = None
class Outer(msgspec.Struct):
    x: "Inner | None" = None
    y: "list[Inner]" = []
    z: "dict[str, Outer]" = {}
'''
SAID = {"x": {"a": 1}, "y": [{"b": [{"c": 2}]}], "z": {"d": {}}}

def round_(number):
    module = sys.modules[f"round{number}"] = types.ModuleType(f"round{number}")
    exec(SOURCE, module.__dict__)
    assert describe_structs() == 2
    ready = threading.Barrier(4)
    def read():
        ready.wait()
        assert msgspec.convert(SAID, module.Outer).x.a == 1
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

describe_structs()
sys.setswitchinterval(1e-6)
for number in range(100):
    round_(number)
print("alive")
"""


def test_threads_that_are_the_first_to_read_a_described_struct_do_no_harm() -> None:
    """Undescribed, some threads of a few rounds read through a null pointer: no test survives that, so
    the race is run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", RACE], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr


def test_what_is_described_once_is_not_again() -> None:
    describe_structs()

    class Fresh(msgspec.Struct):
        a: int = 0

    assert describe_structs() == 1
    assert describe_structs() == 0
    assert Fresh().a == 0


def test_with_the_engine_every_adapter_s_structs_are_described() -> None:
    sender: Any = None
    assert PROVIDERS
    Engine(sender)
    assert describe_structs() == 0
