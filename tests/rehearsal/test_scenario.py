from pathlib import Path

import pytest

from untildone.core.claims import Report, read_claim, report_from, says_done
from untildone.core.policy import COMPLETION_SIGNAL, Policy
from untildone.errors import ConfigError
from untildone.rehearsal.acts import ACTS
from untildone.rehearsal.scenario import (
    SCENARIOS,
    Reply,
    Scenario,
    ToolCall,
    load_scenario,
    parse_scenario,
    shipped_scenario,
)

DOCS = Path(__file__).parents[2] / "docs" / "scenarios.md"


def test_a_reply_takes_every_key() -> None:
    scenario = parse_scenario("""
        name = "all"
        title = "everything"
        model = "m"
        after = "say"
        [[reply]]
        text = "t"
        tools = [{ name = "Bash", input = { command = "ls" } }, { name = "Nothing" }]
        thinking = "h"
        input_tokens = 1
        output_tokens = 2
        cache_read_tokens = 3
        cache_write_tokens = 4
        cache_write_1h_tokens = 5
        latency = 1
        chunk_delay = 0.5
        stop_reason = "max_tokens"
        cut_after = 0.25
        headers = { a = "b" }
        repeat = 6
        model = "n"
        when = "w"
        [[reply]]
        status = 529
        error_type = "e"
        message = "m"
    """)
    first = Reply(
        text="t", tools=(ToolCall("Bash", {"command": "ls"}), ToolCall("Nothing")), thinking="h",
        input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4, cache_write_1h_tokens=5,
        latency=1.0, chunk_delay=0.5, stop_reason="max_tokens", cut_after=0.25, headers=(("a", "b"),),
        repeat=6, model="n", when="w",
    )  # fmt: skip
    second = Reply(status=529, error_type="e", message="m")
    assert scenario == Scenario(name="all", title="everything", model="m", after="say", replies=(first, second))


def test_replies_can_be_grouped_by_conversation() -> None:
    scenario = parse_scenario("""
        [[iteration]]
        [[iteration.reply]]
        text = "a"
        [[iteration.reply]]
        text = "b"
        [[iteration]]
        [[iteration.reply]]
        text = "c"
    """)
    assert [[reply.text for reply in group] for group in scenario.iterations] == [["a", "b"], ["c"]]
    assert scenario.replies == ()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[reply]\n", "f.toml: not valid TOML: "),
        ("nonsense = 1\n[[reply]]", "f.toml: nonsense: unknown key; known are after, "),
        ("", "f.toml: reply: write either [[reply]] tables or [[iteration]] tables"),
        (
            "[[reply]]\n[[iteration]]\n[[iteration.reply]]",
            "f.toml: reply: write either [[reply]] tables or [[iteration]] tables",
        ),
        ("after = 'never'\n[[reply]]", "f.toml: after: must be one of repeat_last, error, say"),
        ("name = 3\n[[reply]]", "f.toml: name: must be text in quotes"),
        ("reply = 3", "f.toml: reply: must be written as [[reply]] tables"),
        ("[[reply]]\n[[reply]]\ntxet = ''", "f.toml: reply 2: txet: unknown key; known are "),
        ("[[reply]]\ntext = 3", "f.toml: reply 1: text: must be text in quotes"),
        ("[[reply]]\ninput_tokens = -1", "f.toml: reply 1: input_tokens: must be a whole number, not negative"),
        ("[[reply]]\ninput_tokens = true", "f.toml: reply 1: input_tokens: must be a whole number, not negative"),
        ("[[reply]]\ninput_tokens = 1.5", "f.toml: reply 1: input_tokens: must be a whole number, not negative"),
        ("[[reply]]\nlatency = inf", "f.toml: reply 1: latency: must be a number, not negative"),
        ("[[reply]]\nlatency = nan", "f.toml: reply 1: latency: must be a number, not negative"),
        ("[[reply]]\ncut_after = 1", "f.toml: reply 1: cut_after: must be at least 0 and less than 1"),
        ("[[reply]]\nstatus = 200", "f.toml: reply 1: status: must be an HTTP error, 400 to 599"),
        ("[[reply]]\nrepeat = 0", "f.toml: reply 1: repeat: must be at least 1"),
        ("[[reply]]\nstatus = 500\ntext = 'x'", "f.toml: reply 1: status: an error reply has no text, "),
        ("[[reply]]\nmessage = 'x'", "f.toml: reply 1: message: only an error reply (one with status) has "),
        ("[[reply]]\nerror_type = 'x'", "f.toml: reply 1: error_type: only an error reply (one with status) "),
        ("[[reply]]\nheaders = 3", "f.toml: reply 1: headers: must be a table such as "),
        ("[[reply]]\nheaders = { a = 3 }", "f.toml: reply 1: headers: a: must be text in quotes"),
        ("[[reply]]\nheaders = { a = 'b\x7f' }", "f.toml: not valid TOML: "),
        ('[[reply]]\nheaders = { a = "b\\r\\nc" }', "f.toml: reply 1: headers: 'a': a header is one line "),
        ("[[reply]]\ntools = 3", "f.toml: reply 1: tools: must be written as [[tools]] tables"),
        ("[[reply]]\ntools = [{ input = {} }]", "f.toml: reply 1: tools 1: name: must be text in quotes"),
        ("[[reply]]\ntools = [{ name = 'B', input = 3 }]", "f.toml: reply 1: tools 1: input: must be a table"),
        ("[[reply]]\ntools = [{ nam = 'B' }]", "f.toml: reply 1: tools 1: nam: unknown key; known are input, "),
        ("[[iteration]]", "f.toml: iteration 1: reply: needs at least one [[iteration.reply]]"),
        ("[[iteration]]\ntext = 'x'", "f.toml: iteration 1: text: unknown key; known are reply"),
        (
            "[[iteration]]\n[[iteration.reply]]\nrepeat = 'x'",
            "f.toml: iteration 1: reply 1: repeat: must be a whole number, not negative",
        ),
    ],
)
def test_a_mistake_is_named_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_scenario(text, source="f.toml")
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)


def test_a_file_is_called_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[[reply]]\ntext = 'é'\n", encoding="utf-8")
    assert load_scenario(path) == Scenario(name="mine", replies=(Reply(text="é"),))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(ConfigError, match=r"missing\.toml: cannot read this scenario: No such file"):
        load_scenario(missing)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"binary\.toml: cannot read this scenario: it is not UTF-8 text"):
        load_scenario(binary)


def test_the_shipped_scenarios_load_and_are_documented() -> None:
    page = DOCS.read_text(encoding="utf-8")
    names = [path.stem for path in SCENARIOS.glob("*.toml")]
    assert len(names) == 6 + len(ACTS)
    for name in names:
        scenario = shipped_scenario(name)
        assert scenario.name == name
        assert scenario.title
        assert f"| `{name}` |" in page


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("done", [True, True]),
        ("lying", [False] * 7),
        ("story", [False, True, True]),
        ("stuck", [False]),
        ("expensive", [False]),
        ("trivial", [False]),
        *((act.scenario, [True]) for act in ACTS),
    ],
)
def test_the_shipped_scenarios_claim_what_they_say(name: str, claims: list[bool]) -> None:
    scenario = shipped_scenario(name)
    groups = scenario.iterations or (scenario.replies,)
    read = [read_claim(group[-1].text, reported(group), signal=COMPLETION_SIGNAL) for group in groups]
    assert [says_done(claim, Policy()) for claim in read] == claims


def reported(group: tuple[Reply, ...]) -> Report | None:
    calls = [call for reply in group for call in reply.tools if call.name == "mcp__untildone__report"]
    return report_from(calls[-1].input) if calls else None


def test_an_unknown_scenario_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"no scenario is called 'x': there are done, expensive, lying, night-.*, story"
    ):
        shipped_scenario("x")


def test_every_example_of_the_documentation_works() -> None:
    blocks = DOCS.read_text(encoding="utf-8").split("```toml\n")[1:]
    examples = [block.split("```")[0] for block in blocks]
    assert len(examples) == 4
    for example in examples:
        assert parse_scenario(example)


def test_every_key_is_documented() -> None:
    page = DOCS.read_text(encoding="utf-8")
    keys = {*Reply.__dataclass_fields__, *Scenario.__dataclass_fields__} - {"replies", "iterations"}
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []
