"""Text on a screen of some width."""

import pytest

from untildone.cli.streams import hanging
from untildone.cli.tables import aligned, runs_table
from untildone.core.printable import columns
from untildone.ports import RunRow


def test_further_lines_stand_below_the_first() -> None:
    text = hanging("  next  ", "one two three four five six seven eight", 24)
    assert text == "  next  one two three\n        four five six\n        seven eight"


def test_nothing_is_wrapped_for_programs_or_on_a_screen_too_narrow_to_read() -> None:
    long = "word " * 50
    assert hanging("  next  ", long, None) == f"  next  {long}"
    assert hanging("  next  ", long, 10) == f"  next  {long}"


def test_a_command_stays_in_one_piece() -> None:
    lines = hanging("> ", "Resume with a higher limit: `untildone resume it --max-cost 10` then look at it", 40).split(
        "\n"
    )
    assert "`untildone resume it --max-cost 10`" in lines[1]
    assert all("\N{NO-BREAK SPACE}" not in line for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_last_column_is_cut_to_fit(width: int) -> None:
    rows = [("#", "SUMMARY"), ("1", "x" * 200), ("2", "日本" * 90)]
    assert max(columns(line) for line in aligned(rows, width).split("\n")) <= width
    assert "x" * 200 in aligned(rows)


def test_of_a_long_path_the_end_is_shown() -> None:
    row = RunRow(
        run_id="abc", name="night", folder="/a/very/long/path/that/fits/on/no/screen/at/all/project",
        created_at=0.0, updated_at=0.0, status="running", alive=True,
    )  # fmt: skip
    narrow = runs_table([row], 5.0, 60).split("\n")[1]
    assert columns(narrow) <= 60
    assert narrow.endswith("/all/project")
    assert row.folder in runs_table([row], 5.0)
