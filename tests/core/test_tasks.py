"""Counting boxes."""

import pytest

from untildone.core.tasks import Tasks, all_done, read_tasks, task_prompt


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Tasks()),
        ("- [ ] a\n- [x] b\n- [X] c", Tasks(open_blocking=1, ticked=2, next_open="a")),
        ("* [ ] a\n+ [x] b\n1. [ ] c\n12) [x] d", Tasks(open_blocking=2, ticked=2, next_open="a")),
        ("- top\n  - [ ] in\n\t- [x] tab\n        - [ ] deep", Tasks(open_blocking=2, ticked=1, next_open="in")),
        ("- [x] a\r\n- [ ] b\r\n", Tasks(open_blocking=1, ticked=1, next_open="b")),
        ("- [2026-01-29] dated\n- [link](x)\n- [-] dropped\n- []\n[ ] no list\n- [1] note\n- [](x)\n-", Tasks()),
        ("-[ ] a\n- [] b\n- [~] c\n1.[/] d\n- [\u00a0] e\n-[x] f\n- [\u2713] g",
         Tasks(open_blocking=5, ticked=2, next_open="a")),
        ("- [ ]\n- [x]", Tasks(open_blocking=1, ticked=1)),
        ("- [ ](x)\n- [x]y", Tasks()),
        ("> - [ ] quoted", Tasks()),
        ("```\n- [ ] shown\n```\n- [x] real", Tasks(ticked=1)),
        ("- [x] real\n```\n- [ ] behind a fence nobody closed", Tasks(open_blocking=1, ticked=1,
         next_open="behind a fence nobody closed")),
    ],
)  # fmt: skip
def test_boxes(text: str, expected: Tasks) -> None:
    assert read_tasks(text) == expected


@pytest.mark.parametrize(
    "heading",
    [
        "# Optional",
        "## future",
        "### Future Enhancements",
        "###### NICE TO HAVE",
        "## **Optional**:",
        "## Nice-to-have ##",
    ],
)
def test_boxes_under_these_headings_do_not_block(heading: str) -> None:
    assert read_tasks(f"- [x] a\n{heading}\n- [ ] b\n- [x] c") == Tasks(open_optional=1, ticked=2)


@pytest.mark.parametrize(
    "heading", ["## Optional chaining", "## The Future", "##Optional", "Optional", "####### Optional"]
)
def test_boxes_under_other_headings_block(heading: str) -> None:
    assert read_tasks(f"{heading}\n- [ ] b").open_blocking == 1


def test_the_optional_sections_are_the_users_to_name() -> None:
    text = "- [x] a\n## Some-day:\n- [ ] b\n## Optional\n- [ ] c"
    assert read_tasks(text, ("Some day",)) == Tasks(open_blocking=1, open_optional=1, ticked=1, next_open="c")
    assert read_tasks(text, ()).open_blocking == 2


def test_an_optional_section_ends_at_the_next_heading_of_its_level_or_above() -> None:
    text = """\
# Plan
## Optional
- [ ] one
### Parser
- [ ] two
## Must
- [ ] three
### Future
- [ ] four
# Rest
- [ ] five
## Nice to have
## Optional
- [ ] six
```
## Must
```
- [ ] seven
"""
    assert read_tasks(text) == Tasks(open_blocking=2, open_optional=5, next_open="three")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- [x] a", True),
        ("- [x] a\n## Optional\n- [ ] b", True),
        ("- [x] a\n- [ ] b", False),
        ("- [ ] a", False),
        ("## Optional\n- [ ] b", False),
        ("no boxes", False),
        ("", False),
    ],
)
def test_all_done(text: str, expected: bool) -> None:
    assert all_done(read_tasks(text)) is expected


def test_a_long_task_is_cut() -> None:
    assert len(read_tasks("- [ ] " + "x" * 9999).next_open) == 500


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("Do: %s", "Do: LIST"),
        ("%s then %s", "LIST then %s"),
        ("100%d of %% and %s", "100%d of %% and LIST"),
        ("Work.", "Work.\n\nLIST"),
        ("50% done", "50% done\n\nLIST"),
        ("", "\n\nLIST"),
    ],
)
def test_a_template_is_taken_literally(template: str, expected: str) -> None:
    assert task_prompt(template, "LIST") == expected


def test_text_that_looks_like_a_template_stays_as_it_is() -> None:
    assert task_prompt("[%s]", r"100% \1 %s {x}") == r"[100% \1 %s {x}]"


def test_the_default_wraps_the_tasks_and_says_what_to_do() -> None:
    prompt = task_prompt(None, "- [ ] a %s")
    assert prompt.startswith("<tasks>\n- [ ] a %s\n</tasks>\n")
    assert "next open task" in prompt
    assert "mark it done" in prompt
