import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.core.typed_options import FLAG, MANY, ONE, read_options
from untildone.errors import UsageError

KNOWN = {"max": ONE, "promise": MANY, "check": MANY, "adopt": FLAG}
ALIASES = {"max-iterations": "max"}


@pytest.mark.parametrize(
    ("typed", "options", "text"),
    [
        ("", {}, ""),
        ("make it work", {}, "make it work"),
        ("make it work --max 5", {"max": ["5"]}, "make it work"),
        ("--max=5 make it work", {"max": ["5"]}, "make it work"),
        ("--max-iterations 7 go", {"max": ["7"]}, "go"),
        ("a --max 3 b", {"max": ["3"]}, "a b"),
        ("--max 3 --max 4 go", {"max": ["3", "4"]}, "go"),
        ("fix the user's login, it's broken", {}, "fix the user's login, it's broken"),
        ("fix 'the login' --max 3", {"max": ["3"]}, "fix 'the login'"),
        ('"add a --verbose flag" --max 3', {"max": ["3"]}, "add a --verbose flag"),
        ("go -- add --verbose", {}, "go add --verbose"),
        ("go --promise 'ALL DONE' --promise \"it's fine\"", {"promise": ["ALL DONE", "it's fine"]}, "go"),
        ("go --promise='ALL DONE'", {"promise": ["ALL DONE"]}, "go"),
        ('go --check "grep \\"a b\\" f"', {"check": ['grep "a b" f']}, "go"),
        ("go --check '--version'", {"check": ["--version"]}, "go"),
        ("--adopt", {"adopt": [""]}, ""),
        ("two\nlines  here --max 2\nand more", {"max": ["2"]}, "two\nlines  here and more"),
        ("un-ended 'quote --max 2", {"max": ["2"]}, "un-ended 'quote"),
        ("emoji ✅ --promise ✅", {"promise": ["✅"]}, "emoji ✅"),
    ],
)
def test_options_are_taken_out_of_the_text(typed: str, options: dict[str, list[str]], text: str) -> None:
    read = read_options(typed, KNOWN, ALIASES)
    assert (read.options, read.text) == (options, text)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("go --mx 3", "did you mean --max?"),
        ("go --zzz", "there are --max, --promise"),
        ("go --max", "--max needs a value"),
        ("go --max --adopt", "--max needs a value"),
        ("--adopt=yes", "--adopt takes no value"),
    ],
)
def test_what_cannot_be_meant_is_refused(typed: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_options(typed, KNOWN, ALIASES)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_last_value_counts_and_all_can_be_had() -> None:
    read = read_options("--max 1 --promise a --max 2 --promise b", KNOWN)
    assert (read.last("max"), read.all("promise"), read.last("check"), read.has("adopt")) == (
        "2",
        ["a", "b"],
        None,
        False,
    )


@given(st.text())
def test_any_text_is_read_or_refused(typed: str) -> None:
    try:
        read = read_options(typed, KNOWN)
    except UsageError:
        return
    if "--" not in typed and not set(typed) & set("\"'"):
        assert read.text == typed.strip()
