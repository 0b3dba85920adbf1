"""Where a line of shell goes, and what its patterns match."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.core.shell_line import simple_commands
from untildone.core.shell_walk import Walk, lies_above, lies_in, normal, part_matches, ways

ENV = {"HOME": "/home/ada", "X": "x y"}


def last(text: str) -> tuple[str, list[str]]:
    """The folder and the words of the command that comes last."""
    walk = Walk("/p", ENV)
    steps = [walk.step(command) for command in sorted(simple_commands(text), key=lambda each: each.at)]
    return walk.folder(steps[-1].scope), steps[-1].words


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("cd a; x", "/p/a"),
        ("cd a/../b && cd c; x", "/p/b/c"),
        ("cd; x", "/home/ada"),
        ("cd ~/s; x", "/home/ada/s"),
        ("cd a; cd -; x", "/p"),
        ("pushd a; popd; x", "/p"),
        ("(cd a); x", "/p"),
        ("(cd a; x)", "/p/a"),
        ("(cd a); (x)", "/p"),
        ("bash -c 'cd a'; x", "/p"),
        ("eval 'cd a'; x", "/p/a"),
        ("y=$(cd a; pwd); x", "/p"),
        ("cd /; cd $HOME; x", "/home/ada"),
    ],
)
def test_the_folder_of_a_command(text: str, folder: str) -> None:
    assert last(text)[0] == folder


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("x $HOME/a", "/home/ada/a"),
        ("x ${HOME}a", "/home/adaa"),
        ("x ~", "/home/ada"),
        ("x ~ada", "~ada"),
        ("d=a; x ${d}b/$d", "ab/a"),
        ("export d=a; x $d", "a"),
        ("x ${NO:-$HOME}", "/home/ada"),
        ("x $NO/a", "$NO/a"),
        ("cd a; x $PWD", "/p/a"),
        ("x $", "$"),
        ("x ${HOME", "/home/ada"),
    ],
)
def test_what_variables_hold(text: str, word: str) -> None:
    assert last(text)[1][1:] == [word]


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("a*", "abc", True),
        ("*", ".abc", False),
        (".*", ".abc", True),
        ("?bc", "abc", True),
        ("[xa]bc", "abc", True),
        ("a*c*e", "abcde", True),
        ("a*c*e", "abcd", False),
        ("ABC", "abc", True),
        ("[", "[", True),
        ("", "a", False),
    ],
)
def test_patterns(pattern: str, name: str, *, is_match: bool) -> None:
    assert part_matches(pattern, name) is is_match


def test_places() -> None:
    assert lies_in("/p/.u*/x", "/p/.untildone")
    assert lies_in("/p/.untildone", "/p/.untildone")
    assert not lies_in("/p/.untildoned", "/p/.untildone")
    assert lies_above("/p", "/p/.untildone")
    assert lies_above("/", "/p/.untildone")
    assert not lies_above("/p/.untildone", "/p/.untildone")
    assert normal("/a/./b//../c/") == "/a/c"
    assert set(ways("a{b,c{d,e}}f")) == {"abf", "acdf", "acef"}
    assert len(ways("{a,b}" * 30)) < 200


@given(st.text(alphabet="ab*?[]{},$~/. '\"`();|&<>=-\ncd", max_size=60))
def test_any_line_can_be_followed(text: str) -> None:
    walk = Walk("/p", ENV)
    for command in simple_commands(text):
        known = walk.step(command)
        for word in known.words:
            assert all(path.startswith("/") for path in walk.paths(word, known.scope))
