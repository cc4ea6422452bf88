"""Campaigns in the console: made from an uploaded file, started, approved and stopped, each by who may."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text

from admin.access import Role
from admin.audit.journal import AuditFilter
from admin.pages.campaigns.uploads import kept_upload
from admin.parts import ConsoleParts
from admin.web.forms import SentFile, WrongForm
from backends.settings import CampaignSettings
from policy.templates.versions import TemplateVersions
from producer.campaigns.contract import Campaign, CampaignState
from producer.campaigns.run_store import runs_of
from producer.campaigns.store import campaigns_of
from tests.admin.conftest import Browser

FORM = {"lane": "sms.marketing", "template": "SMS_9", "reason": "autumn sale", "when": "now"}
CROWD = b"receiver,name\n+8613800000001,Li\n+8613800000002,Wang\n"


@pytest.fixture(autouse=True)
def _own_folder(parts: ConsoleParts, tmp_path: Path) -> None:
    object.__setattr__(
        parts,
        "settings",
        msgspec.structs.replace(
            parts.settings,
            base=str(tmp_path),
            campaigns=CampaignSettings(folder="crowds", upload_mb=9),
            resend=msgspec.structs.replace(parts.settings.resend, approve_above=2),
        ),
    )


@pytest.fixture
def person(browser: Callable[[], Browser], user: Callable[..., int]) -> Callable[..., Browser]:
    """Signs a person in."""

    def sign_in(name: str, *roles: Role, lane: str = "*") -> Browser:
        user(name, dict.fromkeys(roles, (lane,)))
        one = browser()
        one.sign_in(name)
        return one

    return sign_in


@pytest.fixture
def lin(person: Callable[..., Browser]) -> Browser:
    return person("lin", Role.OPERATOR)


def upload(one: Browser, content: bytes = CROWD, name: str = "crowd.csv", **fields: str) -> str:
    """Sends the form. Returns the campaign's id."""
    answer = one.client.post(
        "/campaigns",
        data={"csrf": one.token(), **FORM, **fields},
        files={"file": (name, content, "text/csv")},
        follow_redirects=False,
    )
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"].rpartition("/")[2])


def stored(parts: ConsoleParts, campaign_id: str) -> Campaign:
    found = campaigns_of(parts.ledger).get(campaign_id)
    assert found is not None
    return found


def audited(parts: ConsoleParts) -> list[tuple[str, str, str]]:
    rows = parts.journal.page(AuditFilter(), 100)
    return [(r.person, r.action, r.lane) for r in rows if r.action.startswith("campaign.")]


def test_an_uploaded_file_becomes_a_campaign_that_starts(parts: ConsoleParts, lin: Browser) -> None:
    campaign = upload(lin)
    made = stored(parts, campaign)
    assert (made.crowd.rows, made.columns.variables) == (2, {"name": "name"})
    assert Path(made.crowd.path).read_bytes() == CROWD
    assert Path(made.crowd.path).parent.name == "crowds"
    page = lin.get(f"/campaigns/{campaign}").text
    assert "Start: 2 rows" in page
    assert campaign in lin.get("/campaigns").text
    assert lin.post(f"/campaigns/{campaign}/start", reason="checked").status_code == 303
    assert stored(parts, campaign).state is CampaignState.SCHEDULED
    assert audited(parts) == [
        ("lin", "campaign.start", "sms.marketing"),
        ("lin", "campaign.make", "sms.marketing"),
    ]


def test_the_same_form_sent_twice_is_one_campaign(parts: ConsoleParts, lin: Browser) -> None:
    first, second = upload(lin, once="a"), upload(lin, once="a")
    assert first == second
    assert len(campaigns_of(parts.ledger).newest(10)) == 1
    assert upload(lin, once="b") != first


@pytest.mark.parametrize("name", ["lin", "lin." * 20 + "li@example.com"], ids=["short", "long"])
def test_above_the_threshold_an_approver_who_is_another_person_lets_it_go(
    name: str, parts: ConsoleParts, person: Callable[..., Browser]
) -> None:
    lin = person(name, Role.OPERATOR, Role.APPROVER)
    zhao = person("zhao", Role.APPROVER)
    campaign = upload(lin, CROWD + b"+8613800000003,Chen\n")
    lin.post(f"/campaigns/{campaign}/start", reason="checked")
    assert stored(parts, campaign).state is CampaignState.WAITING
    assert f"/campaigns/{campaign}/approve" not in lin.get(f"/campaigns/{campaign}").text
    assert f"/campaigns/{campaign}/approve" in zhao.get(f"/campaigns/{campaign}").text
    own = lin.post(f"/campaigns/{campaign}/approve", reason="me too")
    assert own.status_code == 409
    assert "another person must approve" in own.text
    assert zhao.post(f"/campaigns/{campaign}/approve", reason="yes").status_code == 303
    assert stored(parts, campaign).approved_by == "zhao"


def test_orders_follow_the_states_and_a_refused_one_says_why(
    parts: ConsoleParts, lin: Browser
) -> None:
    campaign = upload(lin)
    early = lin.post(f"/campaigns/{campaign}/pause", reason="no")
    assert early.status_code == 409
    assert "cannot become PAUSED" in early.text
    lin.post(f"/campaigns/{campaign}/start", reason="checked")
    for order, state in (("pause", "PAUSED"), ("resume", "SCHEDULED"), ("cancel", "CANCELLED")):
        assert lin.post(f"/campaigns/{campaign}/{order}", reason="so").status_code == 303
        assert stored(parts, campaign).state.value == state
    assert lin.post(f"/campaigns/{campaign}/cancel").status_code == 422  # without a reason


def test_a_changed_file_is_refused_at_the_start(parts: ConsoleParts, lin: Browser) -> None:
    campaign = upload(lin)
    path = Path(stored(parts, campaign).crowd.path)
    path.chmod(0o600)
    path.write_bytes(CROWD.replace(b"Wang", b"Zhou"))
    answer = lin.post(f"/campaigns/{campaign}/start", reason="checked")
    assert answer.status_code == 409
    assert "changed since the campaign was made" in answer.text


@pytest.mark.parametrize(
    ("content", "name", "fields", "text_"),
    [
        (CROWD, "crowd.xlsx", {}, "must end in .csv"),
        (b"x" * (9 << 20) + b"\n", "crowd.csv", {}, "larger than 9 MiB"),
        (b"receiver,name\n", "crowd.csv", {}, "it has no rows"),
        (b"phone,name\n1,2\n", "crowd.csv", {}, "has no column"),
        (CROWD, "crowd.csv", {"template": ""}, "Choose a lane and a template"),
        (CROWD, "crowd.csv", {"when": "cron"}, "Write a cron expression"),
        (CROWD, "crowd.csv", {"when": "cron", "cron": "0 9 * *"}, "five fields"),
        (CROWD, "crowd.csv", {"zone": "Asia/Nowhere"}, "there is no time zone"),
        (CROWD, "crowd.csv", {"hours": "morning"}, "are no hours"),
        (CROWD, "crowd.csv", {"constants": "shop"}, "write VARIABLE=VALUE"),
    ],
)
@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_wrong_form_comes_back_with_one_sentence(
    parts: ConsoleParts,
    lin: Browser,
    content: bytes,
    name: str,
    fields: dict[str, str],
    text_: str,
) -> None:
    answer = lin.client.post(
        "/campaigns",
        data={"csrf": lin.token(), **FORM, **fields},
        files={"file": (name, content, "text/csv")},
        follow_redirects=False,
    )
    assert answer.status_code == 422
    assert text_ in answer.text
    assert not campaigns_of(parts.ledger).newest(10)


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_file_of_more_than_the_requests_of_other_pages_fits(
    parts: ConsoleParts, lin: Browser
) -> None:
    rows = b"".join(b"+86138%08d,%s\n" % (n, b"n" * 900) for n in range(9_500))
    assert len(rows) > 8 << 20
    assert stored(parts, upload(lin, b"receiver,name\n" + rows)).crowd.rows == 9_500


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_name_of_the_browser_leads_to_no_other_folder(parts: ConsoleParts) -> None:
    file = SentFile("../../../etc/passwd.csv.gz", gzip.compress(CROWD))
    kept = kept_upload(file, parts.settings)
    assert kept.parent == (Path(parts.settings.base) / "crowds").absolute()
    assert kept.name.endswith(".csv.gz")
    with pytest.raises(WrongForm):
        kept_upload(SentFile("crowd", CROWD), parts.settings)


def test_lanes_of_others_are_neither_seen_nor_ordered(
    parts: ConsoleParts, lin: Browser, person: Callable[..., Browser]
) -> None:
    campaign = upload(lin)
    other = person("wu", Role.OPERATOR, lane="email.*")
    assert campaign not in other.get("/campaigns").text
    for path in ("", "/live", "/bad-rows.csv"):
        assert other.get(f"/campaigns/{campaign}{path}").status_code == 404
    assert other.post(f"/campaigns/{campaign}/start", reason="mine").status_code == 404
    assert other.post("/campaigns", **FORM).status_code == 403
    viewer = person("vi", Role.VIEWER, lane="sms.*")
    assert viewer.get(f"/campaigns/{campaign}").status_code == 200
    assert viewer.post(f"/campaigns/{campaign}/start", reason="mine").status_code == 403


def test_bad_rows_are_shown_and_come_as_csv(parts: ConsoleParts, lin: Browser) -> None:
    campaign = upload(lin)
    lin.post(f"/campaigns/{campaign}/start", reason="checked")
    runs = runs_of(parts.ledger)
    opened = runs.open(stored(parts, campaign), 1_000)
    with parts.ledger.database.begin() as connection:
        insert = (
            "INSERT INTO campaign_bad_rows VALUES (:run, 7, 'variable_type', 'an \"int\", no text')"
        )
        connection.execute(text(insert), {"run": opened.run_id})
        connection.execute(text("UPDATE campaign_runs SET bad = 1"))
    page = lin.get(f"/campaigns/{campaign}").text
    assert "variable_type" in page
    answer = lin.get(f"/campaigns/{campaign}/bad-rows.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.text.splitlines() == ["line,code,detail", '7,variable_type,"an ""int"", no text"']
    assert lin.get(f"/campaigns/{campaign}/bad-rows.csv?run=other").status_code == 404
    assert "HX-Refresh" in lin.get(f"/campaigns/{campaign}/live?was=SCHEDULED").headers


def test_templates_of_ours_are_checked_before_a_campaign_is_made(
    parts: ConsoleParts, lin: Browser
) -> None:
    assert not TemplateVersions(parts.databases.reads).history(1, None)
    (Path(parts.settings.base) / "templates.toml").write_text(
        '[templates.sale]\nchannel = "sms"\nvariables.amount = {type = "int"}\n'
        'content.text = "{{ amount }} off"\n'
    )
    answer = lin.client.post(
        "/campaigns",
        data={"csrf": lin.token(), **FORM, "template": "sale"},
        files={"file": ("crowd.csv", CROWD, "text/csv")},
        follow_redirects=False,
    )
    assert answer.status_code == 422
    assert "wants &#39;amount&#39;" in answer.text
    assert stored(parts, upload(lin, template="sale", constants="amount=5")).template == "sale"
