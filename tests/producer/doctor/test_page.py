"""docs/doctor.md has every rule as the code has it."""

from pathlib import Path

from producer.doctor.docs_page import rules_table

PAGE = Path(__file__).parents[3] / "docs" / "doctor.md"


def test_the_table_of_the_page_is_that_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("<!-- rules: begin -->\n")[2].partition("\n<!-- rules: end -->")[0]
    assert table == rules_table(), "write docs/doctor.md again with producer.doctor.docs_page"
