import pytest

from untildone.core import units


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1h30m", 5400), ("90s", 90), ("2H", 7200), ("30m2h", 9000), ("1h 30m", 5400), ("0", 0), ("0s", 0)],
)
def test_durations_may_be_zero_here(written: str, seconds: float) -> None:
    assert units.duration(written) == seconds


@pytest.mark.parametrize("written", ["90", "", "h", "1y", "1h30", "-5m", "ten minutes", True, None])
def test_a_duration_without_a_unit_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"cannot be read: .*1h30m"):
        units.duration(written)


def test_a_timeout_must_leave_some_time() -> None:
    assert units.timeout("5") == 5
    with pytest.raises(ValueError, match="longer than zero"):
        units.timeout("0s")


def test_a_bare_number_counts_what_the_setting_says() -> None:
    assert units.duration("15", bare="minutes") == 900
    assert units.duration(3, bare="seconds") == 3
    assert units.duration("1.5", bare="minutes") == 90


def test_zero_means_no_limit() -> None:
    assert units.limit("0") is None
    assert units.money("0") is None
    assert units.limit_duration("0") is None
    assert units.limit_duration("0s") is None
    assert units.limit_duration("0", bare="minutes") is None


@pytest.mark.parametrize("wrong", ["ten", "1.5", 1.5, True, "", None])
def test_whole_numbers_are_whole(wrong: object) -> None:
    with pytest.raises(ValueError, match="whole number"):
        units.whole(wrong)


def test_bounds_are_named() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        units.whole("0")
    with pytest.raises(ValueError, match="between 1 and 100, not 101"):
        units.whole(101, most=100)
    with pytest.raises(ValueError, match="at least 0, not -1"):
        units.limit("-1")


@pytest.mark.parametrize(("written", "amount"), [("5", 5.0), ("$2.50", 2.5), (0.75, 0.75)])
def test_money(written: object, amount: float) -> None:
    assert units.money(written) == amount


@pytest.mark.parametrize("wrong", ["-1", "five", "nan", "inf", True, ""])
def test_money_must_be_an_amount(wrong: object) -> None:
    with pytest.raises(ValueError, match="US dollars"):
        units.money(wrong)


def test_switches_take_the_words_people_use() -> None:
    assert [units.switch(word) for word in (True, "true", "YES", "on", "1")] == [True] * 5
    assert [units.switch(word) for word in (False, "false", "No", "off", "0")] == [False] * 5
    with pytest.raises(ValueError, match="true or false"):
        units.switch("maybe")


def test_tools_are_split_at_commas_outside_parentheses() -> None:
    assert units.tools("Edit, Bash(git log:*, -n), Read") == ("Edit", "Bash(git log:*, -n)", "Read")
    assert units.tools(["Edit", "Bash(npm test)"]) == ("Edit", "Bash(npm test)")
    assert units.tools("Bash(unclosed") == ("Bash(unclosed",)


def test_lists_come_from_lines_or_lists() -> None:
    assert units.lines("pytest -q\n\nruff check .") == ("pytest -q", "ruff check .")
    assert units.lines(("a", "b")) == ("a", "b")
    with pytest.raises(ValueError, match="text in quotes"):
        units.lines([1])


@pytest.mark.parametrize("wrong", ["", " \n ", ("",), ["true", " "]])
def test_an_empty_item_is_a_mistake(wrong: object) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        units.lines(wrong)


def test_no_tools_at_all_can_be_said() -> None:
    assert units.tools(("",)) == units.tools("") == ()


@pytest.mark.parametrize(("written", "part"), [("30%", 0.3), (30, 0.3), ("2.5", 0.025), ("0", None), (" 99 % ", 0.99)])
def test_shares(written: object, part: float | None) -> None:
    assert units.share(written) == part


@pytest.mark.parametrize("wrong", ["100", "-1", "a third", "nan", True, ""])
def test_a_share_is_a_percentage(wrong: object) -> None:
    with pytest.raises(ValueError, match="30%"):
        units.share(wrong)


@pytest.mark.parametrize(
    ("written", "number"), [("512M", 512 << 20), ("2G", 2 << 30), ("1.5k", 1536), ("1 GiB", 1 << 30), ("7", 7), (0, 0)]
)
def test_sizes(written: object, number: int) -> None:
    assert units.size(written) == number
    assert units.size(units.size_text(number)) == number


@pytest.mark.parametrize("wrong", ["-1M", "big", "", "1X", True, "1e9"])
def test_a_size_has_a_unit_people_know(wrong: object) -> None:
    with pytest.raises(ValueError, match="512M"):
        units.size(wrong)


@pytest.mark.parametrize(("number", "written"), [(512 << 20, "512M"), (1 << 30, "1G"), (1536, "1536"), (0, "0")])
def test_sizes_are_written_as_they_are_read(number: int, written: str) -> None:
    assert units.size_text(number) == written


def test_arguments_are_split_like_a_shell_does() -> None:
    assert units.words("--settings 'a b'") == ("--settings", "a b")
    with pytest.raises(ValueError, match="cannot be split"):
        units.words("'open")


@pytest.mark.parametrize("written", ["07:30", "7:30", "23:59:59", "2026-01-31T07:30", "2026-01-31 07:30:00+02:00"])
def test_moments(written: str) -> None:
    assert units.moment(written)


@pytest.mark.parametrize("wrong", ["25:00", "07:60", "noon", "2026-13-31T07:30", "2026-01-31", ""])
def test_impossible_moments_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="07:30"):
        units.moment(wrong)


def test_a_size_can_have_a_floor() -> None:
    assert units.size("256M", least=256 << 20) == 256 << 20
    with pytest.raises(ValueError, match=r"at least 256M, not '255M'"):
        units.size("255M", least=256 << 20)
