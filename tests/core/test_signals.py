"""When a completion signal is said, and when it is only talked about."""

import pytest

from untildone.core.claims import Claim, read_claim, says_done
from untildone.core.policy import Policy

SIGNAL = "CONTINUOUS_CLAUDE_PROJECT_COMPLETE"


def read(text: str, prompt: str = "", match: str = "line") -> Claim:
    return read_claim(text, None, signal=SIGNAL, match=match, prompt=prompt)


def done(claim: Claim) -> bool:
    return says_done(claim, Policy())


@pytest.mark.parametrize(
    "text",
    [
        SIGNAL,
        f"All tests pass.\n\n{SIGNAL}\n",
        f"All done\r\n  {SIGNAL}  \r\n",
        f"**{SIGNAL}**",
        f"`{SIGNAL}`",
        f"- {SIGNAL}",
        f"* parsed the file\n* wrote the tests\n* {SIGNAL}",
        f"3. {SIGNAL}",
        f"# {SIGNAL}",
        f"## ✅ {SIGNAL}",
        f"**{SIGNAL}.**",
        f"{SIGNAL}.",
        f"{SIGNAL}!",
        f"🎉 {SIGNAL} 🎉",
        f"→ {SIGNAL}",
        f"Here is the completion signal:\n\n{SIGNAL}",
        f"I did not find anything else to do.\n{SIGNAL}",
        f"<promise>{SIGNAL}</promise>",
        f"Done! <promise>{SIGNAL}</promise>",
        f"Tests pass after the fix. <done> {SIGNAL} </done>",
        f"<promise>\n{SIGNAL}\n</promise>",
        f"```\npytest -q\n```\n{SIGNAL}",
        f"I said earlier: I will output {SIGNAL} when done.\nNow it is.\n\n{SIGNAL}",
    ],
)
def test_a_signal_that_is_said(text: str) -> None:
    claim = read(text)
    assert claim.form == "signal"
    assert done(claim)


@pytest.mark.parametrize(
    "text",
    [
        f"I will not output {SIGNAL} yet.",
        f"not yet: {SIGNAL}",
        f"I will not output:\n{SIGNAL}",
        f"I can't say\n{SIGNAL}\nbecause two tests fail.",
        f"I won\u2019t write\n{SIGNAL}",
        f"When everything passes I will output:\n\n{SIGNAL}",
        f"The phrase\n{SIGNAL}\nmeans that all is done.",
        f"> {SIGNAL}",
        f"> You asked for\n{SIGNAL}",
        f"```\n{SIGNAL}\n```",
        f"~~~text\n{SIGNAL}\n~~~",
        f"Log:\n```\nstill running\n{SIGNAL}",
        f'You want me to say "{SIGNAL}" at the end.',
        f'"{SIGNAL}"',
        f"- {SIGNAL}\n- and one more thing",
        f"- [ ] {SIGNAL}",
        f"~~{SIGNAL}~~",
        f"❌ {SIGNAL}",
        f"{SIGNAL}?",
        f"{SIGNAL}...",
        f"“{SIGNAL}”",
        f"| {SIGNAL} |",
        f"Status: {SIGNAL}",
        f"I will not output <promise>{SIGNAL}</promise>",
        f"I am not done. <promise>{SIGNAL}</promise>",
        f"Later I say <promise>{SIGNAL}</promise>",
        f"<promise>{SIGNAL}</promise> is what I say at the end",
        f"<code>{SIGNAL}</code>",
        f"<example>\n{SIGNAL}\n</example>",
        f"<promise>{SIGNAL}</done>",
        f"<promise>almost {SIGNAL}</promise>",
        SIGNAL.lower(),
        f"{SIGNAL}_NOT",
        f"{SIGNAL} {SIGNAL}",
        "",
    ],
)
def test_a_signal_that_is_not_said(text: str) -> None:
    claim = read(text)
    assert (claim.form, claim.signal) == ("none", False)
    assert not done(claim)


def test_a_signal_in_an_echo_of_the_prompt_does_not_count() -> None:
    prompt = f"Fix the bug.\nWhen the ENTIRE goal is reached, print:\n{SIGNAL}\nand nothing after it.\n"
    assert not read(prompt, prompt=prompt).signal
    lead = f"The rules:\nPrint this phrase as a last line\n{SIGNAL}"
    assert read(lead).signal
    assert not read(lead, prompt=f"x\nPrint this phrase as a last line\n\n{SIGNAL}\n").signal
    assert read(f"The bug is fixed.\n{SIGNAL}", prompt=prompt).signal


@pytest.mark.parametrize(
    ("text", "substring", "any_case"),
    [
        (f"I will not output {SIGNAL} yet.", True, True),
        (f"> `x{SIGNAL}x`", True, True),
        (SIGNAL.lower(), False, True),
        ("nothing", False, False),
    ],
)
def test_the_older_ways_of_matching_are_plain(text: str, substring: bool, any_case: bool) -> None:
    assert read(text, match="substring").signal is substring
    assert read(text, match="substring_any_case").signal is any_case


@pytest.mark.parametrize("match", ["line", "substring", "substring_any_case"])
def test_an_empty_signal_is_never_said(match: str) -> None:
    assert not read_claim("\n\nwords\n", None, signal=" ", match=match).signal
