"""policy.toml: defaults, kinds and lanes merge, and every mistake is told with line and key."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.settings import PolicySettings, Settings
from message.vocabulary import LANES, Lane, lane_named
from policy.gates import ContentDedup, FrequencyCap, QuietHours
from policy.loading import PolicyError, cautions_in, file_of, load, parse
from policy.schema import (
    DEFAULTS_BY_KIND,
    BreakerPolicy,
    Guarantee,
    LanePolicy,
    Ordering,
    Policy,
    RetryPolicy,
    SmtpPolicy,
    WhenLost,
)
from policy.toml_document import key_lines, line_of
from policy.validation import contradictions

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "policy.toml"


def policy_of(file: Path, text: str, lane: str) -> LanePolicy:
    file.write_text(text, "utf-8")
    found = lane_named(lane)
    assert found is not None
    return load(file).of(found)


def problems(file: Path, text: str, accounts: list[str] | None = None) -> list[str]:
    file.write_text(text, "utf-8")
    with pytest.raises(PolicyError) as caught:
        load(file, accounts)
    return [f"{p.line} {p.key}: {p.text}" for p in caught.value.problems]


def test_without_a_file_every_lane_follows_its_kind() -> None:
    policy = load(None)
    assert policy == Policy()
    for lane in LANES:
        assert policy.of(lane) == DEFAULTS_BY_KIND[lane.kind]


def test_the_defaults_contradict_nothing() -> None:
    for policy in DEFAULTS_BY_KIND.values():
        assert list(contradictions(policy)) == []


def test_a_verification_lives_five_minutes_and_others_a_day() -> None:
    assert DEFAULTS_BY_KIND["verification"].ttl_ms == 5 * 60_000
    assert DEFAULTS_BY_KIND["notice"].ttl_ms == DEFAULTS_BY_KIND["marketing"].ttl_ms == 86_400_000


def test_a_lane_goes_before_its_kind_and_the_kind_before_the_defaults(file: Path) -> None:
    text = (
        "[defaults]\nthreads = 1\nqueue = 1\nmax_in_flight = 9\n"
        "[defaults.notice]\nthreads = 2\nqueue = 2\n"
        '[lanes."sms.notice"]\nthreads = 3\n'
    )
    sms = policy_of(file, text, "sms.notice")
    assert (sms.threads, sms.queue, sms.max_in_flight) == (3, 2, 9)
    email = policy_of(file, text, "email.notice")
    assert (email.threads, email.queue, email.max_in_flight) == (2, 2, 9)
    other = policy_of(file, text, "sms.verification")
    assert (other.threads, other.queue, other.max_in_flight) == (1, 1, 9)
    assert other.ttl_ms == DEFAULTS_BY_KIND["verification"].ttl_ms


def test_choices_are_read_by_name(file: Path) -> None:
    text = '[lanes."sms.notice"]\nguarantee = "at_most_once"\nordering = "key"\n'
    policy = policy_of(file, text, "sms.notice")
    assert policy.guarantee is Guarantee.AT_MOST_ONCE
    assert policy.ordering is Ordering.KEY


def cautions(file: Path, text: str) -> list[str]:
    file.write_text(text, "utf-8")
    load(file)
    return [f"{p.line} {p.key}: {p.text}" for p in cautions_in(file)]


def test_limits_of_mail_below_the_protocols_own_are_told_where_they_stand(file: Path) -> None:
    said = cautions(
        file,
        "[defaults.smtp]\nfinal_ms = 5_000\n"
        '[lanes."email.notice".smtp]\ngreeting_ms = 6_000\ntotal_ms = 100_000\n',
    )
    assert [line.partition(" is below")[0] for line in said[:2]] == [
        "2 defaults.smtp.final_ms: 5000",
        '4 lanes."email.notice".smtp.greeting_ms: 6000',
    ]
    assert "may be sent again" in said[0]
    assert "never gets out" in said[1]
    assert said[2].startswith('5 lanes."email.notice".smtp.total_ms: 100000 leaves less than')
    assert len(said) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[defaults]\ntimeout_ms = 1_000\n",
        '[lanes."sms.notice".smtp]\nfinal_ms = 5_000\n',
        "[defaults.smtp]\nfinal_ms = 900_000\ntotal_ms = 3_000_000\nconnect_ms = 1_000\n",
    ],
)
def test_what_fits_the_protocol_needs_no_look(file: Path, text: str) -> None:
    assert cautions(file, text) == []


def test_no_time_before_the_dot_is_a_mistake(file: Path) -> None:
    (said,) = problems(file, '[lanes."email.notice".smtp]\ntotal_ms = 600_000\n')
    assert said.startswith('2 lanes."email.notice".smtp.total_ms: 600000 is not above')


def test_the_version_follows_the_content(file: Path) -> None:
    file.write_text("[defaults]\nthreads = 1\n")
    first = load(file).version
    assert re.fullmatch(r"file:[0-9a-f]{12}", first)
    assert load(file).version == first
    file.write_text("[defaults]\nthreads = 2\n")
    assert load(file).version != first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("threads = 3\n", "1 threads: is outside of any table; put it under [defaults]"),
        ("[lane]\n", "1 lane: unknown table; did you mean lanes?"),
        (
            '\n[lanes."sms.verfication"]\n',
            '2 lanes."sms.verfication": no such lane; did you mean sms.verification?',
        ),
        ("[lanes.sms.notice]\n", '1 lanes.sms: quote the name: [lanes."sms.notice"]'),
        ("[defaults]\n# x\nqueu = 1\n", "3 defaults.queu: unknown key; did you mean queue?"),
        ('[defaults]\nthreads = "5"\n', "2 defaults.threads: expected int, got str"),
        ("[defaults]\nthreads = 0\n", "2 defaults.threads: expected int >= 1, got 0"),
        ("[defaults]\nthreads = true\n", "2 defaults.threads: expected int, got bool"),
        ("[defaults]\nqueue = 10001\n", "2 defaults.queue: expected int <= 10000, got 10001"),
        (
            '[defaults]\nguarantee = "at_least_onc"\n',
            (
                "2 defaults.guarantee: 'at_least_onc' is none of best_effort, at_most_once, "
                "at_least_once; did you mean at_least_once?"
            ),
        ),
        ("defaults = 3\n", "1 defaults: must be a table"),
        ('[lanes]\n"sms.notice" = 3\n', '2 lanes."sms.notice": must be a table'),
        (
            '[lanes."sms.verification"]\nttl_ms = 7_200_000\n',
            (
                '2 lanes."sms.verification".ttl_ms: 7200000 is above max_ttl_ms 3600000; '
                "lower it, or raise that"
            ),
        ),
        (
            '[lanes."sms.notice"]\nttl_ms = 5000\n',
            (
                '1 lanes."sms.notice".timeout_ms: 5000 is not below ttl_ms 5000: '
                "no call could end in time"
            ),
        ),
        (
            '[lanes."sms.notice"]\nmax_in_flight = 8\n',
            (
                '2 lanes."sms.notice".max_in_flight: 8 is below threads 16, '
                "some of which would never work"
            ),
        ),
        (
            '[defaults.notice]\nguarantee = "best_effort"\nordering = "key"\n',
            (
                '3 defaults.notice.ordering: by key needs the ledger, which guarantee "best_effort" '
                "does without"
            ),
        ),
        (
            "[defaults\n",
            "1 the file: no TOML: Expected ']' at the end of a table declaration (at line 1, column 10)",
        ),
    ],
)
def test_a_mistake_is_told_with_line_and_key(file: Path, text: str, said: str) -> None:
    assert said in problems(file, text)


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(file: Path) -> None:
    text = '[lanes."sms.notice"]\nthreads = 0\nqueue = -1\n[defaults]\nxyz = 1\n'
    lines = [int(told.split()[0]) for told in problems(file, text)]
    assert lines == [2, 3, 5]


def test_the_first_mistake_stands_in_the_error_and_the_rest_are_counted(file: Path) -> None:
    file.write_text("[defaults]\nx1 = 1\nx2 = 2\n")
    with pytest.raises(PolicyError, match=rf"{re.escape(str(file))}:2: defaults\.x1.*1 more"):
        load(file)


def test_an_account_must_be_configured(file: Path) -> None:
    text = '[lanes."sms.notice"]\naccounts = ["aliyn"]\n'
    said = "lanes.\"sms.notice\".accounts: account 'aliyn' is not in hongyan.toml"
    assert problems(file, text, ["aliyun"]) == [f"2 {said}; did you mean aliyun?"]
    assert problems(file, text, []) == [f"2 {said}; add [accounts.NAME] there"]
    load(file)  # nobody said which there are


def test_an_account_is_named_once(file: Path) -> None:
    text = '[defaults]\naccounts = ["a", "a"]\n'
    assert problems(file, text, ["a"])[0].endswith("names an account twice; name each once")


def test_accounts_may_be_weighed_and_a_reserve_weighs_nothing(file: Path) -> None:
    text = '[lanes."sms.notice"]\naccounts = { aliyun = 3, tencent = 1, twilio = 0 }\n'
    policy = policy_of(file, text, "sms.notice")
    assert policy.account_names == ["aliyun", "tencent", "twilio"]
    weights = [policy.weight(name) for name in (*policy.account_names, "other")]
    assert weights == [3, 1, 0, 0]


def test_accounts_in_a_list_weigh_the_same(file: Path) -> None:
    policy = policy_of(file, '[defaults]\naccounts = ["a", "b"]\n', "sms.notice")
    assert policy.account_names == ["a", "b"]
    assert policy.weight("a") == policy.weight("b") == 1


def test_without_accounts_every_one_weighs_the_same(file: Path) -> None:
    policy = policy_of(file, "", "sms.notice")
    assert (policy.account_names, policy.weight("any")) == ([], 1)


def test_the_nearer_table_of_weights_replaces_the_whole(file: Path) -> None:
    text = '[defaults.accounts]\na = 1\nb = 2\n[lanes."sms.notice"]\naccounts = ["c"]\n'
    assert policy_of(file, text, "sms.notice").accounts == ["c"]
    assert policy_of(file, text, "email.notice").accounts == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[lanes."sms.notice".accounts]\naliyun = 3\naliyn = 1\n',
            (
                "3 lanes.\"sms.notice\".accounts.aliyn: account 'aliyn' is not in hongyan.toml; "
                "did you mean aliyun?"
            ),
        ),
        (
            '[lanes."sms.notice".accounts]\naliyun = 3\ntencent = "1"\n',
            '3 lanes."sms.notice".accounts.tencent: expected int, got str',
        ),
        (
            "[defaults]\naccounts = { aliyun = -1 }\n",
            "2 defaults.accounts.aliyun: expected int >= 0, got -1",
        ),
        (
            "[defaults]\naccounts = { aliyun = 1001, tencent = 1 }\n",
            "2 defaults.accounts.aliyun: expected int <= 1000, got 1001",
        ),
        (
            "[defaults]\naccounts = { aliyun = 0, tencent = 0 }\n",
            "2 defaults.accounts: gives no account a weight above 0, so nothing would choose one",
        ),
        (
            "[defaults]\naccounts = {}\n",
            "2 defaults.accounts: gives no account a weight above 0, so nothing would choose one",
        ),
        (
            '[defaults]\naccounts = "aliyun"\n',
            "2 defaults.accounts: must be a list of names, or a table of names and weights",
        ),
        ("[defaults]\naccounts = [1]\n", "2 defaults.accounts: expected str, got int"),
    ],
)
def test_a_mistake_among_accounts_is_told_with_line_and_key(
    file: Path, text: str, said: str
) -> None:
    assert problems(file, text, ["aliyun", "tencent"]) == [said]


def test_each_field_of_a_breaker_is_taken_from_the_nearest_table(file: Path) -> None:
    text = (
        "[defaults.breaker]\nshare = 0.1\nprobes = 1\nopen_ms = 10\n"
        "[defaults.notice.breaker]\nshare = 1\nprobes = 2\n"
        '[lanes."sms.notice"]\nbreaker = { probes = 3 }\n'
    )
    breaker = policy_of(file, text, "sms.notice").breaker
    assert (breaker.share, breaker.probes, breaker.open_ms) == (1.0, 3, 10)
    assert breaker.max_open_ms == BreakerPolicy().max_open_ms
    other = policy_of(file, text, "sms.marketing").breaker
    assert (other.share, other.probes) == (0.1, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[defaults]\nbreaker = 3\n", "2 defaults.breaker: must be a table"),
        (
            '[lanes."sms.notice".breaker]\nshares = 1\n',
            '2 lanes."sms.notice".breaker.shares: unknown key; did you mean share?',
        ),
        (
            "[defaults.breaker]\nprobes = 1\nshare = 1.5\n",
            "3 defaults.breaker.share: expected float <= 1.0, got 1.5",
        ),
        (
            "[defaults.notice.breaker]\nopen_ms = 90_000\n",
            (
                "2 defaults.notice.breaker.open_ms: 90000 is above max_open_ms 60000; "
                "lower it, or raise that"
            ),
        ),
        ("[breaker]\n", "1 breaker: is outside of any table; put it under [defaults]"),
    ],
)
def test_a_mistake_in_a_breaker_is_told_with_line_and_key(file: Path, text: str, said: str) -> None:
    assert problems(file, text) == [said]


def test_each_field_of_retry_is_taken_from_the_nearest_table(file: Path) -> None:
    text = (
        "[defaults.retry]\nattempts = 3\nbase_ms = 10\n"
        '[lanes."sms.notice"]\nretry = { base_ms = 20, jitter = 0 }\n'
    )
    retry = policy_of(file, text, "sms.notice").retry
    assert (retry.attempts, retry.base_ms, retry.jitter) == (3, 20, 0)
    assert policy_of(file, text, "sms.marketing").retry.base_ms == 10
    built_in = policy_of(file, "", "sms.marketing").retry
    assert (built_in.base_ms, built_in.cap_ms) == (30_000, 3_600_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[defaults.retry]\nattempts = 0\n", "2 defaults.retry.attempts: expected int >= 1, got 0"),
        (
            "[defaults.retry]\nbase = 1\n",
            "2 defaults.retry.base: unknown key; did you mean base_ms?",
        ),
        (
            "[defaults.notice.retry]\nbase_ms = 700_000\n",
            (
                "2 defaults.notice.retry.base_ms: 700000 is above cap_ms 600000; "
                "lower it, or raise that"
            ),
        ),
        ("[defaults]\nretry_ms = 1\n", "2 defaults.retry_ms: unknown key; did you mean retry?"),
    ],
)
def test_a_mistake_in_retry_is_told_with_line_and_key(file: Path, text: str, said: str) -> None:
    assert problems(file, text) == [said]


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="No such file"):
        load(tmp_path / "gone.toml")


def test_the_file_beside_the_configuration_is_found(file: Path) -> None:
    base = str(file.parent)
    assert file_of(Settings(base=base)) is None
    file.write_text("")
    assert file_of(Settings(base=base)) == file
    named = Settings(base=base, policy=PolicySettings(file="other.toml"))
    assert file_of(named) == file.parent / "other.toml"


def test_lines_are_found_through_quotes_dots_and_strings() -> None:
    text = (
        'a.b = 1\n["x.y".z]\n# k = 1\nk = """\nj = 2\n"""\n'
        "'q q' = [\n  1,\n]\n[[rows]]\ninline = { u = 1 }\n"
    )
    lines = key_lines(text)
    assert lines["a",] == lines["a", "b"] == 1
    assert lines["x.y", "z"] == 2
    assert lines["x.y", "z", "k"] == 4
    assert lines["x.y", "z", "q q"] == 7
    assert line_of(lines, ("x.y", "z", "missing")) == 2
    assert line_of(lines, ("nowhere",)) == 1


@given(st.text(max_size=80))
def test_any_text_has_lines_or_none_but_never_an_error(text: str) -> None:
    key_lines(text)


@given(st.sampled_from(LANES), st.integers(1, 1_000), st.integers(1, 3_600_000))
def test_what_a_lane_says_is_what_it_gets(lane: Lane, threads: int, ttl: int) -> None:
    text = f'[lanes."{lane.name}"]\nthreads = {threads}\nttl_ms = {ttl}\n'
    table = tomllib.loads(text)["lanes"][lane.name]
    assert table == {"threads": threads, "ttl_ms": ttl}
    assert line_of(key_lines(text), ("lanes", lane.name, "ttl_ms")) == 3


def test_every_field_is_documented() -> None:
    page = (ROOT / "docs" / "policy.md").read_text("utf-8")
    lanes = (LanePolicy, BreakerPolicy, RetryPolicy, SmtpPolicy)
    gates = (QuietHours, FrequencyCap, ContentDedup)
    for field in (field for table in (*lanes, *gates) for field in table.__struct_fields__):
        assert f"| `{field}` |" in page, f"docs/policy.md does not describe {field}"


def test_the_example_is_a_good_one() -> None:
    load(ROOT / "examples" / "policy.toml")


def test_a_lost_delivery_is_resent_as_the_guarantee_says_or_the_field() -> None:
    assert LanePolicy().resends_lost
    assert not LanePolicy(guarantee=Guarantee.AT_MOST_ONCE).resends_lost
    assert not LanePolicy(guarantee=Guarantee.BEST_EFFORT).resends_lost
    assert LanePolicy(guarantee=Guarantee.AT_MOST_ONCE, lost=WhenLost.RESEND).resends_lost
    assert not LanePolicy(lost=WhenLost.ASK).resends_lost


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('lost = "retry"', "lost"),
        ('guarantee = "best_effort"\nlost = "resend"', '"resend" needs the ledger'),
        ("receipt_lag_ms = 0", "receipt_lag_ms"),
        ("retention_days = 7\nreceipt_lag_ms = 604_800_001", "the row would be gone by then"),
    ],
)
def test_wrong_terms_of_lost_deliveries_are_refused(text: str, problem: str) -> None:
    with pytest.raises(PolicyError, match=problem):
        parse("policy.toml", f"[defaults]\n{text}\n".encode(), version="v")
