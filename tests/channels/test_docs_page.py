"""docs/channels.md says what the adapters say, and nothing else."""

from pathlib import Path

from channels.docs_page import page
from channels.registry import PROVIDERS

DOCUMENT = Path(__file__).parents[2] / "docs" / "channels.md"


def test_the_document_is_what_the_code_says() -> None:
    said = "docs/channels.md is stale; run `python -m channels.docs_page > docs/channels.md`"
    assert DOCUMENT.read_text("utf-8") == page(), said


def test_every_provider_its_options_and_its_errors_are_in_it() -> None:
    text = page()
    for name, adapter in PROVIDERS.items():
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert adapter.promises.title in section
        for field in adapter.options.__struct_fields__:
            assert f"| `{field}` |" in section
        for row in adapter.errors:
            assert f"| `{row.code}` |" in section
            assert " ".join(row.meaning.split()).replace("|", "\\|") in section


def test_every_row_of_a_table_has_its_heads_columns() -> None:
    columns = 0
    for line in page().splitlines():
        cells = line.replace("\\|", "").count("|")
        if not line.startswith("|"):
            columns = 0
            continue
        columns = columns or cells
        assert cells == columns, line


def test_the_page_on_recalls_has_every_provider_that_takes_back() -> None:
    table = (DOCUMENT.parent / "recall.md").read_text("utf-8").partition("## After it")[2]
    named = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    assert named == {name for name, one in PROVIDERS.items() if one.recall_window_ms}
