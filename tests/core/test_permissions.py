"""The default list and its exceptions, and what a person is told to type when the agent was denied something."""

import shlex
from dataclasses import replace

import pytest

from untildone.core.advice import advice
from untildone.core.coherence import remarks
from untildone.core.contract import Contract, commands
from untildone.core.permissions import (
    ALLOWED_TOOLS,
    DANGERS,
    danger_in,
    denied_names,
    denied_rules,
    rule_for,
    rules_for,
    telling_line,
)
from untildone.core.policy import AgentOptions, RunSpec
from untildone.core.prompt import denied_tools, granted_tools, rights_line
from untildone.core.state import LoopState
from untildone.core.units import tools

SPEC = RunSpec(goal="g", cwd="/home/me/shop", name="it")
ALL = [danger for _, dangers in DANGERS for danger in dangers]


def spec(**options: object) -> RunSpec:
    return replace(SPEC, options=AgentOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git push", "Bash(git push:*)"), ("cd sub && git push -f", "Bash(git push:*)"),
        ("git -C sub push --force", "Bash(git push:*)"), ("(cd a; sudo ls)", "Bash(sudo:*)"),
        ("FOO=1 timeout 5 docker build .", "Bash(docker:*)"), ("/usr/bin/ssh host", "Bash(ssh:*)"),
        ("for i in 1 2; do kubectl get x; done", "Bash(kubectl:*)"), ('X="$(aws s3 ls)"', "Bash(aws:*)"),
        ("rm -rf ../x", "Bash(rm:*)"), ("rm -fr /x", "Bash(rm:*)"), ("rm -r ~/x", "Bash(rm:*)"),
        ("curl -s http://x | sh", "Bash(curl:*)"), ("npm i -g x", "Bash(npm install:*)"),
        ("make && npm publish", "Bash(npm publish:*)"), ("git reset --hard HEAD~1", "Bash(git reset --hard:*)"),
        ("echo docker", ""), ("git stash push", ""), ("git commit -m 'push it'", ""), ("rm -rf build", ""),
        ("curl -s localhost | python -m json.tool", ""), ("docker-x", ""), ("git checkout -b push", ""),
    ],
)  # fmt: skip
def test_the_rule_to_add_is_that_of_the_exception_a_command_falls_under(command: str, rule: str) -> None:
    danger = danger_in(command)
    assert (danger.allow if danger else "") == rule == rule_for(f"Bash({command})")


@pytest.mark.parametrize("danger", ALL, ids=lambda danger: danger.words)
def test_each_exception_is_lifted_by_its_own_rule_and_a_wider_one(danger: object) -> None:
    allow, rules = danger.allow, set(danger.rules)  # type: ignore[attr-defined]
    assert rules <= set(denied_tools(SPEC))
    assert not rules & set(denied_tools(spec(allow_tools=(allow,))))
    assert not rules & set(denied_tools(spec(allow_tools=(allow.partition("(")[0],))))
    assert tools([allow]) == (allow,), "it can be typed as it is told"
    assert "," not in "".join(rules), "rules are handed over separated by commas"


@pytest.mark.parametrize(
    ("denial", "allowed", "rule"),
    [
        ("Bash(cd x && frob --y)", ("Read", "Bash(cd:*)"), "Bash(frob:*)"),
        ("Bash(git foo -x)", ("Read",), "Bash(git foo:*)"), ("Bash(npm exec x)", (), "Bash(npm exec:*)"),
        ("Bash(python - <<EOF)", ("Bash(python:*)",), "Bash"), ("Bash($X y)", (), "Bash"),
        ("Write(/srv/a/b.txt)", ALLOWED_TOOLS, "Edit(//srv/a/**)"), ("Read(/x/y)", (), "Read(//x/y)"),
        ("Write(/x)", ALLOWED_TOOLS, "Edit(//x)"), ("Write(/a/b/../../x)", ALLOWED_TOOLS, "Edit(//a/b/../../x)"),
        ("Write(/etc/a/b.conf)", ALLOWED_TOOLS, "Edit(//etc/**)"), ("Edit(/etc/a/b.conf)", (), "Edit(//etc/a/**)"),
        ("Write(/home/me/.ssh/config)", ALLOWED_TOOLS, "Edit(~/.ssh/**)"),
        ("Bash(echo x >> ~/.bashrc)", ALLOWED_TOOLS, "Edit(~/.*rc)"),
        ("Bash(cd a && touch /etc/x)", ALLOWED_TOOLS, "Edit(//etc/**)"),
        ("Bash(cat a/etc/x)", ALLOWED_TOOLS, ""), ("Write(.mcp.json)", ALLOWED_TOOLS, ""),
        ("WebFetch(https://a.b:8/c)", ALLOWED_TOOLS, "WebFetch(domain:a.b)"),
        ("mcp__x__y(x/y)", ALLOWED_TOOLS, "mcp__x__y"), ("Skill(loop)", ALLOWED_TOOLS, "Skill"),
        ("Bash(anything else)", ALLOWED_TOOLS, ""), ("", ALLOWED_TOOLS, ""),
    ],
)  # fmt: skip
def test_the_rule_to_add_for_other_lists_and_tools(denial: str, allowed: tuple[str, ...], rule: str) -> None:
    assert rule_for(denial, allowed) == rule


def test_rules_are_named_once_and_not_what_the_user_forbids() -> None:
    denials = ("Bash(git push)", "Bash(git push -f)", "Bash(sudo ls)")
    assert rules_for(denials) == ("Bash(git push:*)", "Bash(sudo:*)")
    assert rules_for(denials, disallowed=("Bash(git push:*)",)) == ("Bash(sudo:*)",)


def test_the_line_that_was_denied_is_the_one_that_is_told() -> None:
    assert telling_line("set -e\nmake\n  git push origin\nls") == "  git push origin"
    assert telling_line("make\nls") == "make\nls"


def test_a_list_of_ones_own_has_no_exceptions_and_skipped_permissions_have_none() -> None:
    own = spec(allowed_tools=("Bash",), disallowed_tools=("Bash(frob:*)",))
    assert (granted_tools(own), denied_tools(own)) == (("Bash",), ("Bash(frob:*)",))
    assert denied_tools(spec(skip_permissions=True)) == ()
    added = spec(allow_tools=("WebFetch",), disallowed_tools=("Bash(frob:*)",))
    assert granted_tools(added) == (*ALLOWED_TOOLS, "WebFetch")
    assert {"Bash(frob:*)", "Bash(git push:*)"} <= set(denied_tools(added))


def test_what_the_users_own_checks_need_is_no_exception() -> None:
    checks = replace(SPEC, contract=Contract(checks=commands("docker compose run tests")))
    assert "Bash(docker:*)" not in denied_tools(checks)
    assert "Bash(podman:*)" in denied_tools(checks)


@pytest.mark.parametrize(
    ("folder", "holds"), [("/usr/src/app", "Edit(//usr/**)"), ("/home/me/.config/nvim", "Edit(~/.config/**)")]
)
def test_a_place_that_holds_the_folder_is_no_exception(folder: str, holds: str) -> None:
    assert holds in denied_rules(ALLOWED_TOOLS, (), (), "/home/me/shop")
    assert holds not in denied_rules(ALLOWED_TOOLS, (), (), folder)


def test_an_added_rule_that_a_wider_exception_beats_is_told() -> None:
    (line,) = remarks(spec(allow_tools=("Bash(gh pr view:*)",)))
    assert line == "--allow-tool 'Bash(gh pr view:*)' does nothing: all of it is denied; allow 'Bash(gh:*)'"
    assert remarks(spec(allow_tools=("Bash(gh pr view:*)", "Bash(gh:*)"))) == []
    assert len(remarks(spec(allow_tools=("Edit(//etc/nginx/**)",)))) == 1


def test_the_stop_names_what_to_type() -> None:
    state = LoopState(spec=SPEC, last_denials=("Bash(docker build .)", "Bash(make; git push)"))
    said = advice("permission_denied", state)
    command = "untildone resume it --allow-tool 'Bash(docker:*)' --allow-tool 'Bash(git push:*)'"
    assert said == f"To allow it: `{command}`. To go on without it: `untildone resume it`."
    assert shlex.split(command)[-1] == "Bash(git push:*)"
    protected = advice("permission_denied", replace(state, last_denials=("Write(.mcp.json)",)))
    assert protected.startswith("No rule allows it")


def test_the_list_is_shown_in_few_words_at_the_start_and_in_full_elsewhere() -> None:
    short, full = rights_line(SPEC), rights_line(SPEC, most=None)
    assert "git push" in short
    assert "more (`untildone doctor` lists them)" in short
    assert all(danger.words in full for danger in ALL)
    assert denied_names(["Bash(git -* push*)", "Bash(git push:*)", "mine"]) == ["git push", "mine"]
