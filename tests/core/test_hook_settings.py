import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.core.hook_settings import (
    CAP,
    MARK,
    RAISED,
    Hook,
    cap_of,
    is_raised,
    our_commands,
    read_settings,
    with_hooks,
    without_hooks,
)
from untildone.errors import ConfigError

HOOKS = [
    Hook(event="Stop", command=f"sh '/a b/run.sh' Stop {MARK}", timeout=1800),
    Hook(
        event="UserPromptExpansion", command=f"sh '/a b/run.sh' UserPromptExpansion {MARK}", timeout=30, matcher="^u:"
    ),
]
OTHERS = """{
    "model": "opus",
    "hooks": {
        "Stop": [
            {"hooks": [{"type": "command", "command": "mine"}]}
        ],
        "PreToolUse": [{"matcher": "Bash", "hooks": []}]
    },
    "env": {"A": "1"}
}
"""


def test_other_peoples_hooks_stay_first_and_untouched() -> None:
    settings = json.loads(with_hooks(OTHERS, HOOKS))
    assert settings["hooks"]["Stop"][0] == {"hooks": [{"type": "command", "command": "mine"}]}
    assert settings["hooks"]["Stop"][1] == HOOKS[0].group()
    assert settings["hooks"]["UserPromptExpansion"] == [HOOKS[1].group()]
    assert settings["hooks"]["UserPromptExpansion"][0]["matcher"] == "^u:"
    assert settings["env"] == {"A": "1", CAP: str(RAISED)}
    assert (settings["model"], settings["hooks"]["PreToolUse"]) == ("opus", [{"matcher": "Bash", "hooks": []}])


@pytest.mark.parametrize(
    "text",
    [
        OTHERS,
        OTHERS.replace("\n", "\r\n"),
        OTHERS.replace("    ", "\t"),
        "{}",
        '{"a":1}',
        '{"env":{"A":"1"},"hooks":{"Stop":[{"hooks":[{"type":"command","command":"mine"}]}]}}',
        f'{{"env": {{"{CAP}": "20"}}}}',
        f'{{"env": {{"{CAP}": "0"}}}}',
        '\ufeff{\n  "a": "ä ✅ \\u0041"\n}',
    ],
)
def test_what_was_put_in_comes_out_without_a_trace(text: str) -> None:
    earlier = cap_of(read_settings(text, "f"))
    assert without_hooks(with_hooks(text, HOOKS), earlier_cap=earlier) == text


def test_hooks_that_others_put_into_our_group_stay() -> None:
    settings = json.loads(with_hooks("{}", HOOKS))
    settings["hooks"]["Stop"][0]["hooks"].append({"type": "command", "command": "mine"})
    left = json.loads(without_hooks(json.dumps(settings), earlier_cap=None))
    assert left == {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}}


def test_a_cap_that_somebody_changed_after_us_stays() -> None:
    text = with_hooks("{}", HOOKS).replace(str(RAISED), "77")
    assert json.loads(without_hooks(text, earlier_cap=None)) == {"env": {CAP: "77"}}


@pytest.mark.parametrize(
    ("cap", "raised"),
    [(None, False), ("8", False), ("0", True), (str(RAISED), True), ("99999", True), ("many", False), ("", False)],
)
def test_when_the_cap_is_raised(cap: str | None, *, raised: bool) -> None:
    assert is_raised(cap) is raised


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "1",
        '{"hooks": []}',
        '{"hooks": {"Stop": {}}}',
        '{"env": "x"}',
        '{"a": 1,}',
        "// c\n{}",
        "[" * 100_000,
    ],
)
def test_what_is_no_settings_file_is_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_settings(text, "settings.json")
    assert "settings.json" in str(refused.value)
    assert "nothing was changed" in str(refused.value)
    assert "\n" not in str(refused.value)


GROUPS = st.lists(
    st.just(HOOKS[0].group()) | st.just({"hooks": [{"type": "command", "command": "mine"}]}) | st.just("odd"),
    max_size=4,
)


@given(st.dictionaries(st.sampled_from(["Stop", "PreToolUse"]), GROUPS), st.sampled_from([None, 2]))
def test_nothing_of_ours_stays_whatever_was_there(hooks: dict[str, list[object]], indent: int | None) -> None:
    text = json.dumps({"hooks": hooks, "z": 1}, indent=indent)
    left = json.loads(without_hooks(with_hooks(text, HOOKS), earlier_cap=None))
    assert our_commands(left) == {}
    kept = [group for groups in left.get("hooks", {}).values() for group in groups]
    assert kept == [group for groups in hooks.values() for group in groups if group != HOOKS[0].group()]
