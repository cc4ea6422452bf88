"""The simulator's page for people."""

from simulator.report import KeyReport, Summary
from simulator.servers.report_page import SHOWN, page


def report(seq: int, receiver: str, accepted: int) -> KeyReport:
    return KeyReport(
        key=f"k{seq}",
        id=f"m{seq}",
        receiver=receiver,
        path="/twilio",
        requests=2,
        accepted=accepted,
        answers={"200": 1, "503": 1},
        last_seq=seq,
        last_ms=1_000,
    )


def test_it_shows_the_latest_messages_first_and_no_more_than_it_promises() -> None:
    shown = page(Summary(keys=3), [report(n, f"r{n}", 1) for n in range(1, SHOWN + 3)]).decode()
    assert shown.count("<tr><td>") == SHOWN
    assert shown.index(f"m{SHOWN + 2}") < shown.index("m3<")
    assert "m2<" not in shown


def test_a_receiver_is_text_and_never_markup() -> None:
    shown = page(Summary(), [report(1, "<script>alert(1)</script>", 0)]).decode()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "class=no" in shown
    assert "200 × 1, 503 × 1" in shown
