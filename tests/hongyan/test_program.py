"""The program as a shell sees it: help, exit codes, one sentence for each error."""

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from backends.interpreter import GC_THRESHOLDS
from tests.hongyan.conftest import Run

COMMANDS = [
    "worker",
    "send",
    "trace",
    "simulator",
    "topics apply",
    "policy check",
    "policy show",
    "policy apply",
    "policy history",
    "db upgrade",
    "deliveries list",
    "resend",
    "recall",
    "dead replay",
    "schema",
]


def test_help_is_quick_and_names_every_command(program: Run) -> None:
    program("--help")  # the first call compiles
    before = _processor_s()
    said = program("--help")
    assert _processor_s() - before < 2.0  # other tests may use the processor meanwhile
    assert said.code == 0
    for command in COMMANDS:
        assert command.split()[0] in said.out


def test_the_installed_program_looks_for_garbage_seldom_before_it_imports() -> None:
    script = Path(sys.executable).with_name("hongyan").read_text(encoding="utf-8")
    assert "from hongyan.program import main" in script
    look = (
        "import gc, sys; before = gc.get_threshold(); from hongyan.program import main;"
        "assert 'typer' not in sys.modules and gc.get_threshold() == before;"
        "import atexit; atexit.register(lambda: print(before, gc.get_threshold()));"
        "sys.argv = ['hongyan', '--version']; main()"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"(700, 10, 10) {GC_THRESHOLDS}"


def _processor_s() -> float:
    """Returns the processor time of the programs that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def test_without_a_command_the_help_is_shown(program: Run) -> None:
    assert "Usage: hongyan" in program().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(program: Run, command: str) -> None:
    said = program(*command.split(), "--help")
    assert said.code == 0
    assert "examples:" in said.out.lower()
    assert re.search(rf"hongyan( -c \S+)? {command}", said.out)


def test_help_loads_no_driver(program: Run) -> None:
    said = program("--help", PYTHONPROFILEIMPORTTIME="1")
    assert said.code == 0
    for driver in ("confluent_kafka", "sqlalchemy", "psycopg", "pycurl", "redis"):
        assert f" {driver}\n" not in said.err


def test_the_version_is_told(program: Run) -> None:
    assert re.fullmatch(r"hongyan \d+\.\d+\.\d+\n", program("--version").out)


@pytest.mark.parametrize(
    ("arguments", "environ", "code", "sentence"),
    [
        (["-c", "gone.toml", "worker"], {}, 2, "gone.toml: no such file"),
        (["policy", "show"], {"HONGYAN_KAFKA__FOO": "1"}, 2, "kafka.foo: unknown key"),
        (["worker", "--lanes", "fax.*"], {}, 2, "no lane matches 'fax.*'"),
        (["send"], {}, 2, "give either --file, or --lane"),
        (["send", "--file", "gone.jsonl"], {}, 2, "gone.jsonl: no such file"),
        (["trace", "x"], {}, 2, "there is no ledger at hongyan.db; run `hongyan db upgrade`"),
        (["topics", "apply"], {"HONGYAN_KAFKA__CLIENT__ACKS": "0"}, 2, "'acks' cannot be set"),
        (["db", "upgrade"], {"HONGYAN_DATABASE__URL": "oracle://x"}, 2, "database.url"),
    ],
)
def test_an_expected_error_is_one_sentence_and_no_traceback(
    program: Run, arguments: list[str], environ: dict[str, str], code: int, sentence: str
) -> None:
    said = program(*arguments, **environ)
    assert said.code == code
    assert said.err.startswith("error: ")
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    assert said.out == ""


def test_a_worker_without_kafka_says_so_and_ends_with_one(program: Run) -> None:
    said = program(
        "worker",
        HONGYAN_KAFKA__BOOTSTRAP="127.0.0.1:1",
        HONGYAN_KAFKA__CONNECT_TIMEOUT_S="0.5",
        HONGYAN_LOG__FORMAT="json",
    )
    assert said.code == 1
    assert "Kafka at 127.0.0.1:1 did not answer within 0.5 s" in said.err
    assert "Traceback" not in said.err


def test_a_worker_refuses_a_wrong_policy_and_says_where(program: Run, folder: Path) -> None:
    (folder / "policy.toml").write_text("[defaults]\nthreads = 0\n")
    said = program("worker")
    assert said.code == 2
    assert "policy.toml:2: defaults.threads: expected int >= 1, got 0" in said.err


def test_flags_nobody_knows_are_a_usage_error(program: Run) -> None:
    assert program("send", "--frobnicate").code == 2
    assert program("frobnicate").code == 2
