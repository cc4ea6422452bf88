import io

import pytest
from rich.table import Table
from rich.text import Text

from hongyan.safe_console import SafeConsole, with_control_pictures


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("call \x1b[31m+86\x1b[0m", "call ␛[31m+86␛[0m"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x9b2J", "\ufffd2J"),
        ("safe\u202egnp.exe", "safe\ufffdgnp.exe"),
        ("back\rover\x7f", "back␍over␡"),
        ("two\nlines\tand 您好 👩\u200d💻", "two\nlines\tand 您好 👩\u200d💻"),
    ],
)
def test_a_text_gives_the_terminal_no_orders(text: str, shown: str) -> None:
    assert with_control_pictures(text) == shown


def test_texts_and_cells_give_no_orders_and_our_styles_stay() -> None:
    file = io.StringIO()
    console = SafeConsole(
        file=file, force_terminal=True, color_system="standard", width=60, highlight=False
    )
    table = Table("WHAT")
    table.add_row("cell \x1b[2J")
    table.add_row(Text("text \x1b[2J", style="red"))
    table.add_row("a wider one, so that the text is whole")
    console.print("line \x1b[2J", markup=False)
    console.print(table)
    with console.status("working \x1b[2J"):
        pass
    printed = file.getvalue()
    assert "\x1b[2J" not in printed
    assert printed.count("␛[2J") >= 4
    assert "\x1b[31m" in printed, "a style of ours"
