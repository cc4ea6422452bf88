"""Wrong command lines: one sentence each that says what to write, exit code 2, no traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hongyan.flags import MOST_ROWS, MOST_VERSION
from tests.hongyan.shell import said

HOOK = (
    "[trace]\nkafka = false\n[accounts.w]\nprovider = 'webhook'\nendpoint = 'http://127.0.0.1:9/'\n"
)
CHANNELS = "sms, email, wechat_official, wechat_mini, wecom, dingtalk, feishu, chat, push, webhook"
GRAMMAR = "write a number and s, m or min, h, or d, or a sum of them, such as 30s, 90m, 1h30m, 2d"

HUGE = "99999999999999999999"

ROWS: list[tuple[tuple[str, ...], int, str]] = [
    (
        ("wroker",),
        2,
        "no such command 'wroker'; did you mean 'worker', 'workers'? (see `hongyan --help`)",
    ),
    (
        ("--confg", "x", "worker"),
        2,
        ("no such option: --confg; did you mean --config? (see `hongyan worker --help`)"),
    ),
    (("-c",), 2, "option '-c' requires an argument (see `hongyan --help`)"),
    (
        ("-c", "gone.toml", "worker"),
        2,
        "gone.toml: no such file; give --config or HONGYAN_CONFIG a file",
    ),
    (("-c", "db", "--nonsense"), 2, "no such option: --nonsense (see `hongyan --help`)"),
    (("--version", "--nonsense"), 2, "no such option: --nonsense (see `hongyan --help`)"),
    (
        ("worker", "--lnae", "sms.*"),
        2,
        "no such option: --lnae; did you mean --lane? (see `hongyan worker --help`)",
    ),
    (
        ("worker", "--lane", "fax.*"),
        2,
        (
            "no lane matches 'fax.*': write CHANNEL.KIND with * and ?, where channel "
            f"is one of {CHANNELS} and kind one of verification, notice, marketing"
        ),
    ),
    (
        ("worker", "sms.notice"),
        2,
        ("got unexpected extra argument(s) (sms.notice) (see `hongyan worker --help`)"),
    ),
    (("worker", "--lane"), 2, "option '--lane' requires an argument (see `hongyan worker --help`)"),
    (
        ("recovery", "--embeded"),
        2,
        ("no such option: --embeded; did you mean --embedded? (see `hongyan recovery --help`)"),
    ),
    (
        ("recovery", "--lane", "*.fax"),
        2,
        (
            "no lane matches '*.fax': write CHANNEL.KIND with * and ?, where channel "
            f"is one of {CHANNELS} and kind one of verification, notice, marketing"
        ),
    ),
    (
        ("receipts", "--listen", "9470"),
        2,
        "receipts.accounts: name the accounts whose providers report here",
    ),
    (
        ("receipts", "--listen"),
        2,
        "option '--listen' requires an argument (see `hongyan receipts --help`)",
    ),
    (("send",), 2, "give either --file, or --lane with --to and what to send"),
    (
        ("send", "--file", "gone.jsonl"),
        2,
        "gone.jsonl: no such file; give one of JSON lines, or - for standard input",
    ),
    (
        ("send", "--file", "/"),
        2,
        "/: it is a folder; give one of JSON lines, or - for standard input",
    ),
    (
        ("-c", "/", "worker"),
        2,
        "/: it is no regular file; give --config or HONGYAN_CONFIG a file",
    ),
    (("lanes", "pause", "", "--reason", "r"), 2, "'': it matches no lane"),
    (("send", "--lane", "sms.notice"), 2, "give either --template or --content"),
    (
        ("send", "--lane", "sms.notise", "--to", "x", "--content", "{}"),
        2,
        (
            "no lane matches 'sms.notise': write CHANNEL.KIND with * and ?, where "
            f"channel is one of {CHANNELS} and kind one of verification, notice, "
            "marketing"
        ),
    ),
    (
        ("send", "--lane", "sms.*", "--to", "x", "--content", "{}"),
        2,
        "--lane 'sms.*' names 3 lanes; name one",
    ),
    (
        ("send", "--lane", "sms.notice", "--to", "+8613800000001", "--content", "hello"),
        2,
        "--content is not JSON: Expecting value: line 1 column 1 (char 0)",
    ),
    (
        ("send", "--lane", "sms.notice", "--to", "+8613800000001", "--content", "[]"),
        2,
        '--content must be a JSON object, such as {"text": "hello"}',
    ),
    (
        ("send", "--lane", "sms.notice", "--to", "+8613800000001", "--content", "[" * 100_000),
        2,
        "--content is nested too deeply",
    ),
    (
        (
            "send",
            "--lane",
            "sms.notice",
            "--to",
            "+8613800000001",
            "--template",
            "T",
            "--content",
            "{}",
        ),
        2,
        "give either --template or --content",
    ),
    (
        (
            "send",
            "--lane",
            "sms.notice",
            "--to",
            "+8613800000001",
            "--template",
            "T",
            "--param",
            "code",
        ),
        2,
        "--param 'code': write KEY=VALUE",
    ),
    (
        (
            "send",
            "--lane",
            "sms.notice",
            "--to",
            "+8613800000001",
            "--content",
            "{}",
            "--param",
            "a=b",
        ),
        2,
        "--param goes with --template",
    ),
    (
        (
            "send",
            "--lane",
            "sms.notice",
            "--to",
            "+8613800000001",
            "--content",
            '{"text":"x"}',
            "--ttl",
            "soon",
        ),
        2,
        f"invalid value for '--ttl': 'soon': {GRAMMAR} (see `hongyan send --help`)",
    ),
    (
        (
            "send",
            "--lane",
            "sms.notice",
            "--to",
            "+8613800000001",
            "--content",
            '{"text":"x"}',
            "--ttl",
            "0",
        ),
        2,
        (
            "invalid value for '--ttl': '0' is too short: give 0.001s at least (see "
            "`hongyan send --help`)"
        ),
    ),
    (
        ("send", "--file", "x", "--timeout", "1y"),
        2,
        f"invalid value for '--timeout': '1y': {GRAMMAR} (see `hongyan send --help`)",
    ),
    (
        ("send", "--file", "gone.jsonl", "--lane", "sms.notice"),
        2,
        "give either --file, or --lane with --to and what to send",
    ),
    (("trace",), 2, "give an ID, --receiver or --template"),
    (("trace", "a", "b"), 2, "got unexpected extra argument(s) (b) (see `hongyan trace --help`)"),
    (
        ("status", "--limit", "0"),
        2,
        (
            "invalid value for '--limit' / '-n': Input should be greater than or equal "
            "to 1 (see `hongyan status --help`)"
        ),
    ),
    (
        ("status", "--limit", "many"),
        2,
        (
            "invalid value for '--limit' / '-n': Input should be a valid integer, "
            "unable to parse string as an integer (see `hongyan status --help`)"
        ),
    ),
    (
        ("status", "--lane", "fax"),
        2,
        (
            "no lane matches 'fax': write CHANNEL.KIND with * and ?, where channel is "
            f"one of {CHANNELS} and kind one of verification, notice, marketing"
        ),
    ),
    (
        ("deliveries", "lst"),
        2,
        ("no such command 'lst'; did you mean 'list'? (see `hongyan deliveries --help`)"),
    ),
    (
        ("deliveries", "list", "--state", "LOST"),
        2,
        (
            "--state LOST: here it may be PARKED, UNKNOWN, REJECTED, EXPIRED, "
            "UNDELIVERED, DROPPED, RETRY, IN_FLIGHT"
        ),
    ),
    (("deliveries", "list", "--since", "yesterday"), 2, f"--since 'yesterday': {GRAMMAR}"),
    (("deliveries", "list", "--since", "30"), 2, f"--since '30': {GRAMMAR}"),
    (("deliveries", "list", "--since", "1h2d"), 2, f"--since '1h2d': {GRAMMAR}"),
    (
        ("deliveries", "list", "--limit", "-1"),
        2,
        (
            "invalid value for '--limit' / '-n': Input should be greater than or equal "
            "to 1 (see `hongyan deliveries list --help`)"
        ),
    ),
    (("resend",), 2, "give IDs, or --biz-id, or --state with --since, or --sent"),
    (
        ("resend", "x", "--biz-id", "y"),
        2,
        "give IDs, or --biz-id, or --state with --since, or --sent",
    ),
    (("resend", "--state", "PARKED"), 2, "--state wants --since, and --since wants --state"),
    (("resend", "--since", "1h"), 2, "give IDs, or --biz-id, or --state with --since, or --sent"),
    (("resend", "x", "--arrived"), 2, "--arrived wants --reason TEXT: it is a person's decision"),
    (
        ("resend", "x", "--arrived", "--discard", "--reason", "r"),
        2,
        ("give one of --new-id, --arrived, --not-arrived, --accept-risk, --ask and --discard"),
    ),
    (
        ("resend", "x", "--lane", "sms.*"),
        2,
        "--lane, --account, --reason-code, --limit and --in-doubt want --state",
    ),
    (
        ("resend", "--state", "DROPPED", "--since", "1h", "--new-id"),
        2,
        (
            "--state DROPPED wants --new-id and --reason-code, since each reason has a way of its "
            "own: quiet_hours, frequency_cap, duplicate_content, recalled, discarded"
        ),
    ),
    (
        ("resend", "--state", "SENT", "--since", "1h"),
        2,
        "--state SENT: here it may be PARKED, REJECTED, EXPIRED",
    ),
    (
        ("resend", "jobs", "lst"),
        2,
        "no such command 'lst'; did you mean 'list'? (see `hongyan resend jobs --help`)",
    ),
    (
        ("resend", "jobs", "new"),
        2,
        "give IDs, or --file, or --state with --lane and --since",
    ),
    (
        ("resend", "jobs", "new", "--state", "PARKED", "--reason", "r"),
        2,
        "--state wants --lane and --since",
    ),
    (
        ("resend", "jobs", "new", "x", "--account", "main"),
        2,
        "--lane, --since, --until, --account, --reason-code and --template want --state",
    ),
    (("resend", "jobs", "new", "x"), 2, "give --reason TEXT: it is kept with the job"),
    (
        ("resend", "jobs", "new", "--file", "gone.txt", "--reason", "r"),
        2,
        "gone.txt: it cannot be read as text: No such file or directory",
    ),
    (
        ("resend", "jobs", "start", "j1", "--count", "3"),
        2,
        "give --preview SIGNATURE and --count N, as `resend jobs show` has them",
    ),
    (
        ("resend", "jobs", "approve", "j1"),
        2,
        "give --preview SIGNATURE, as `resend jobs show` has it",
    ),
    (
        ("resend", "jobs", "cancel"),
        2,
        "missing argument 'JOB' (see `hongyan resend jobs cancel --help`)",
    ),
    (("recall",), 2, "name one of the two: an ID, or --biz-id ID"),
    (("recall", "x", "--biz-id", "y"), 2, "name one of the two: an ID, or --biz-id ID"),
    (
        ("recall", "x", "--wait", "long"),
        2,
        (f"invalid value for '--wait': 'long': {GRAMMAR} (see `hongyan recall --help`)"),
    ),
    (("dead", "replay"), 2, "name the letters: by ORIGIN, --reason-code, --lane or --since"),
    (("dead", "list", "--lane", "sms.*"), 2, "--lane 'sms.*': there is no such lane"),
    (("dead", "list", "--since", "soon"), 2, f"--since 'soon': {GRAMMAR}"),
    (("dead", "show"), 2, "missing argument 'ORIGIN' (see `hongyan dead show --help`)"),
    (
        ("dead", "replay", "--lane", "sms.notice", "--to-lane", "fax.notice"),
        2,
        "--to-lane 'fax.notice': there is no such lane",
    ),
    (("alerts", "silence", "lag"), 2, "give --for TIME and --reason TEXT"),
    (
        ("alerts", "silence", "lagg", "--for", "1h", "--reason", "r"),
        2,
        (
            "there is no rule 'lagg'; there are breaker_open, campaign_paused, dead_letters_held, dropped, "
            "heartbeat_lost, lag, lane_paused, log_began_anew, login_refused, lookback_conflict, "
            "lookback_forward_late, lookback_unresolved, lost, oldest_uncommitted, outbox_late, "
            "outbox_parked, outcomes_late, parked, policy_lanes_kept, policy_refused, "
            "records_removed, recovery_overdue, resend_job_paused, retries_spent, unknown_age"
        ),
    ),
    (
        ("alerts", "silence", "lag", "--for", "0s", "--reason", "r"),
        2,
        "--for '0s': a silence lasts longer than that",
    ),
    (("alerts", "silence", "lag", "--for", "30", "--reason", "r"), 2, f"--for '30': {GRAMMAR}"),
    (("policy", "apply"), 2, "missing argument 'FILE' (see `hongyan policy apply --help`)"),
    (("policy", "apply", "gone.toml"), 2, "gone.toml:1: policy.file: No such file or directory"),
    (
        ("policy", "show", "--lane", "fax.*"),
        2,
        (
            "no lane matches 'fax.*': write CHANNEL.KIND with * and ?, where channel "
            f"is one of {CHANNELS} and kind one of verification, notice, marketing"
        ),
    ),
    (
        ("policy", "apply", "p.toml", "--expect", "new"),
        2,
        "--expect 'new': write a version such as v12; see `hongyan policy history`",
    ),
    (
        ("policy", "history", "first"),
        2,
        (
            "invalid value for '[NUMBER]': Input should be a valid integer, unable to "
            "parse string as an integer (see `hongyan policy history --help`)"
        ),
    ),
    (
        ("policy", "hstory"),
        2,
        ("no such command 'hstory'; did you mean 'history'? (see `hongyan policy --help`)"),
    ),
    (("templates", "render"), 2, "missing argument 'NAME' (see `hongyan templates render --help`)"),
    (
        ("templates", "render", "nobody"),
        2,
        "there is no template 'nobody'; `hongyan templates show` lists them",
    ),
    (
        ("templates", "render", "t", "--var", "x"),
        2,
        "there is no template 't'; `hongyan templates show` lists them",
    ),
    (("accounts", "test"), 2, "missing argument 'NAME' (see `hongyan accounts test --help`)"),
    (
        ("accounts", "test", "nobody", "--to", "x"),
        2,
        "there is no account 'nobody'; hongyan.toml has w",
    ),
    (("accounts", "test", "w"), 2, "missing option '--to' (see `hongyan accounts test --help`)"),
    (
        ("accounts", "test", "w", "--to", "x", "--timeout", "never"),
        2,
        (f"invalid value for '--timeout': 'never': {GRAMMAR} (see `hongyan accounts test --help`)"),
    ),
    (
        ("accounts", "test", "w", "--to", "x", "--text", "a", "--content", "{}"),
        2,
        "give one of --text, --template and --content",
    ),
    (("accounts", "test", "w", "--to", "x", "--subject", "s"), 2, "--subject goes with --text"),
    (
        ("topics", "apply", "--partitions", "0"),
        2,
        (
            "invalid value for '--partitions': Input should be greater than or equal "
            "to 1 (see `hongyan topics apply --help`)"
        ),
    ),
    (
        ("topics", "apply", "--lane", "fax.*"),
        2,
        (
            "no lane matches 'fax.*': write CHANNEL.KIND with * and ?, where channel "
            f"is one of {CHANNELS} and kind one of verification, notice, marketing"
        ),
    ),
    (
        ("topics", "aply"),
        2,
        ("no such command 'aply'; did you mean 'apply'? (see `hongyan topics --help`)"),
    ),
    (
        ("db", "upgrad"),
        2,
        ("no such command 'upgrad'; did you mean 'upgrade'? (see `hongyan db --help`)"),
    ),
    (
        ("db", "upgrade", "now"),
        2,
        "got unexpected extra argument(s) (now) (see `hongyan db upgrade --help`)",
    ),
    (
        ("db", "archive", "--before", "-1"),
        2,
        (f"invalid value for '--before': '-1': {GRAMMAR} (see `hongyan db archive --help`)"),
    ),
    (
        ("db", "archive", "--before", "1h"),
        2,
        (
            "invalid value for '--before': '1h' is no whole number of days (see "
            "`hongyan db archive --help`)"
        ),
    ),
    (
        ("db", "archive", "--before", "soon"),
        2,
        (f"invalid value for '--before': 'soon': {GRAMMAR} (see `hongyan db archive --help`)"),
    ),
    (
        ("config", "shw"),
        2,
        "no such command 'shw'; did you mean 'show'? (see `hongyan config --help`)",
    ),
    (
        ("config", "check", "x"),
        2,
        "got unexpected extra argument(s) (x) (see `hongyan config check --help`)",
    ),
    (
        ("completion", "tcsh"),
        2,
        (
            "invalid value for 'SHELL': 'tcsh' is not one of 'bash', 'zsh', 'fish' "
            "(see `hongyan completion --help`)"
        ),
    ),
    (
        ("completion",),
        2,
        ("missing argument 'SHELL'; choose from bash, zsh, fish (see `hongyan completion --help`)"),
    ),
    (
        ("bench", "worker", "--rounds", "0"),
        2,
        (
            "invalid value for '--rounds': Input should be greater than or equal to 1 "
            "(see `hongyan bench worker --help`)"
        ),
    ),
    (
        ("demo", "--file", "gone.jsonl"),
        2,
        (
            "invalid value for '--file' / '-f': file 'gone.jsonl' does not exist (see "
            "`hongyan demo --help`)"
        ),
    ),
    (
        ("simulator", "--port", "many"),
        2,
        ("argument --port: invalid int value: 'many' (see `hongyan simulator --help`)"),
    ),
]
"""Words of the command line, exit code, sentence."""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty ledger: words are judged before it is, wherever it is needed."""
    path = tmp_path_factory.mktemp("ledger")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HONGYAN_DATABASE__URL", f"sqlite:///{path}/hongyan.db")
        assert said(patch, "db", "upgrade")[0] == 0
    return path / "hongyan.db"


BLANKS: dict[tuple[str, ...], str] = {
    ("resend", "--state", "REJECTED", "--since", "1h", "--lane", ""): "--lane",
    ("resend", "--state", "REJECTED", "--since", "1h", "--account= "): "--account",
    ("resend", "jobs", "new", "--state", "REJECTED", "--lanes", "", "--since", "1h"): "--lanes",
    ("lost", "dismiss", "--cause", "hole", "--lane", " ", "--reason", "r"): "--lane",
    ("dead", "replay", "--since", "1h", "--reason", "", "--yes"): "--reason",
    ("accounts", "pause", "w", "--worker", "", "--reason", "r"): "--worker",
    ("lanes", "pause", "sms.*", "--for", "", "--reason", "r"): "--for",
    ("keys", "new", "shop", "--scope", "send", "--expires", ""): "--expires",
    ("policy", "apply", "policy.toml", "--expect="): "--expect",
    ("campaign", "new", "crowd.csv", "--lane", "sms.notice", "--hours", ""): "--hours",
    ("send", "--lane", "webhook.notice", "--to", "x", "--content", "{}", "--id", ""): "--id",
    ("worker", "-l", ""): "-l",
    ("-c", "", "worker"): "-c",
}
"""Command lines with one blank option, which would widen the order if it counted as not given."""


@pytest.mark.parametrize("words", BLANKS, ids=" ".join)
def test_a_blank_option_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    (folder / "hongyan.toml").write_text(HOOK)
    expected = f"error: {BLANKS[words]} is blank: give it a value, or leave it out\n"
    assert said(monkeypatch, *words) == (2, expected)


def test_send_reads_a_pipe_as_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "hongyan.toml").write_text(HOOK)
    reader, writer = os.pipe()
    line = (
        b'{"channel": "webhook", "kind": "notice", "receivers": ["x"], "content": {"text": "t"}}\n'
    )
    os.write(writer, line)
    os.close(writer)
    code, text = said(monkeypatch, "send", "--check", "--file", f"/dev/fd/{reader}")
    os.close(reader)
    assert (code, text) == (0, "1 good, 0 bad; nothing was sent\n")


def test_a_full_disk_behind_the_output_is_no_fault_of_ours() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from hongyan.program import main; main()",
                "schema",
                "envelope",
            ],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    expected = "error: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, expected)


@pytest.mark.parametrize(
    "words",
    [
        ("alerts", "list", "--json"),
        ("trace", "x", "--brief"),
        ("lanes", "resume", "sms.notice", "--reason", "r", "--author", ""),
        ("resend", "x", "--reason", "r", "--", ""),
    ],
    ids=" ".join,
)
def test_a_text_that_selects_nothing_may_be_blank(
    folder: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    (folder / "hongyan.toml").write_text(HOOK)
    shutil.copy(ledger, folder)
    assert "is blank" not in said(monkeypatch, *words)[1]


def test_there_are_enough_of_them() -> None:
    assert len(ROWS) >= 60
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("words", "code", "expected"), ROWS, ids=[" ".join(r[0])[:200] for r in ROWS]
)
def test_a_wrong_command_line_is_told_in_a_sentence(
    folder: Path,
    ledger: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    expected: str,
) -> None:
    (folder / "hongyan.toml").write_text(HOOK)
    shutil.copy(ledger, folder)
    found, text = said(monkeypatch, *words)
    assert (found, text) == (code, f"error: {expected}\n")


@pytest.mark.parametrize(
    "words",
    [
        *[("policy", "history", HUGE), ("templates", "history", HUGE)],
        *[("policy", "history", "--limit", HUGE), ("templates", "history", "--limit", HUGE)],
        *[("deliveries", "list", "--limit", HUGE), ("lanes", "history", "--limit", HUGE)],
        *[("lost", "list", "--limit", HUGE), ("resend", "jobs", "list", "--limit", HUGE)],
        *[("lost", "dismiss", "--cause", "hole", "--reason", "r", "--limit", HUGE)],
        *[("lookback", "unresolved", "list", "--limit", HUGE), ("outbox", "list", "--limit", HUGE)],
        *[("campaign", "list", "--limit", HUGE), ("spark", "runs", "--limit", HUGE)],
        *[("trace", "x", "--limit", HUGE), ("trace", "x", "--limit", "9223372036854775")],
    ],
    ids=" ".join,
)
def test_a_number_that_no_database_takes_is_refused(
    folder: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    shutil.copy(ledger, folder)
    code, text = said(monkeypatch, *words)
    assert (code, "Input should be less than or equal to" in text) == (2, True), text


def test_the_greatest_numbers_that_are_taken_are_no_fault(
    folder: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ledger, folder)
    for words in (
        *[("policy", "history"), ("templates", "history"), ("deliveries", "list")],
        *[("lanes", "history"), ("lost", "list"), ("resend", "jobs", "list")],
        *[("lookback", "unresolved", "list"), ("campaign", "list")],
    ):
        code, text = said(monkeypatch, *words, "--limit", str(MOST_ROWS))
        assert code == 0, text
    assert "nothing is known" in said(monkeypatch, "trace", "x", "--limit", str(MOST_ROWS))[1]
    for kind in ("policy", "templates"):
        assert "there is no version" in said(monkeypatch, kind, "history", str(MOST_VERSION))[1]
