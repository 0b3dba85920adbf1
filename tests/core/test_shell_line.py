"""Shell commands taken apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.core.shell_line import LONGEST, simple_commands


def calls(text: str) -> list[str]:
    return [" ".join(command.words) for command in simple_commands(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a b; c && d || e & f\ng", ["a b", "c", "d", "e", "f", "g"]),
        ("a 'b c' \"d e\" f\\ g", ["a b c d e f g"]),
        ("a | b |& c", ["a", "b", "c"]),
        ("(a; b) && { c; }", ["a", "b", "c"]),
        ("if a; then b; else c; fi", ["a", "b", "c"]),
        ("while a; do b; done", ["a", "b"]),
        ("A=1 B=2 a", ["a"]),
        ("sudo -u root env X=1 timeout 5 nice -n 3 a b", ["a b"]),
        ("a # not; this", ["a"]),
        ("a#b", ["a#b"]),
        ("a \\\n b", ["a b"]),
        ("a 2>&1 >/dev/null 2>err", ["a"]),
        ("a &>all; b >|c", ["a", "b"]),
        ("a <<< text", ["a"]),
        ("bash -lc 'a; b'", ["bash -lc a; b", "a", "b"]),
        ("eval a b", ["eval a b", "a b"]),
        ("x | xargs -n 1 a b", ["x", "a b"]),
        ("", []),
    ],
)
def test_each_command_is_found(text: str, found: list[str]) -> None:
    assert calls(text) == found


@pytest.mark.parametrize("text", ["echo $(a b)", 'echo "$(a b)"', "echo `a b`", "cat <(a b)", "X=$(a b)", "$(a b)"])
def test_a_substitution_is_a_command_too(text: str) -> None:
    assert "a b" in calls(text)


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("a > f", ["f"]),
        ("a >> 'f g'", ["f g"]),
        ("a >f 2>&1", ["f"]),
        ("a 2>f", ["f"]),
        ("a &> f", ["f"]),
        ("a >& f", ["f"]),
        ("> f", ["f"]),
        ("a < f", []),
        ("a 2>&1", []),
    ],
)
def test_where_output_goes(text: str, writes: list[str]) -> None:
    [command] = simple_commands(text)
    assert command.writes == writes


def test_a_here_document_is_text_unless_a_shell_reads_it() -> None:
    body = "rm -rf x\nmore"
    assert calls(f"cat > f <<'EOF'\n{body}\nEOF\nnext") == ["cat", "next"]
    assert calls(f"bash <<-EOF\n{body}\nEOF\nnext") == ["bash", "rm -rf x", "more", "next"]


def test_a_quote_that_never_closes_ends_with_the_text() -> None:
    assert calls("a 'b; c") == ["a b; c"]


@given(st.text(alphabet="ab '\"`$(){}<>|&;\\\n#=-", max_size=60))
def test_any_text_can_be_taken_apart(text: str) -> None:
    assert all(isinstance(word, str) for command in simple_commands(text) for word in command.words)


@pytest.mark.parametrize("piece", ["$(", "`", "'", '"', "(", "<(", "bash -c '", "eval ", "a <<E\n", "\\"])
def test_nesting_without_end_comes_to_an_end(piece: str) -> None:
    assert simple_commands(piece * 5_000) is not None


def test_no_more_is_read_than_a_command_can_need() -> None:
    assert calls("a " * LONGEST + "; b")[-1] != "b"
