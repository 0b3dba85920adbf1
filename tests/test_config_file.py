"""A settings file, line by line: the [contract] table, and errors that name file and line."""

import json
from contextlib import suppress
from dataclasses import asdict
from datetime import date, datetime, time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from untildone import config
from untildone.cli.preview import preview_text
from untildone.config_file import from_file
from untildone.core.contract import CheckSpec
from untildone.core.policy import RunSpec
from untildone.core.settings import SETTINGS
from untildone.errors import ConfigError, UntildoneError, UsageError

FULL = """\
max_runs = 3

[contract]
setup = "npm ci"
check_in = "clean"
share = ["node_modules"]
guard = "strict"
guard_files = ["golden/**"]
waive = ["tests/old/**"]
require = ["tree-clean"]
fail_to_pass = true
timeout = "5m"

[[contract.checks]]
name = "unit"
run = "pytest -q"

[[contract.checks]]
run = "npm test"
folder = "web"
timeout = "2m"

[[contract.checks]]
run = "secret"
hidden = true
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "UNTILDONE_HOME": str(tmp_path / "state")}


def written(tmp_path: Path, text: str, name: str = "untildone.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def spec_of(file: Path, env: dict[str, str], **flags: object) -> RunSpec:
    config.trust(file, config.state_dir(env))
    found = config.resolve({"max_runs": "1", **flags}, env=env, project_file=file)
    return config.run_spec(found, goal="g", cwd=file.parent, name="n", task_file=None)


def test_a_contract_with_everything(tmp_path: Path, env: dict[str, str]) -> None:
    contract = spec_of(written(tmp_path, FULL), env).contract
    assert contract.checks == (
        CheckSpec(name="unit", command="pytest -q"),
        CheckSpec(name="npm test", command="npm test", folder="web", timeout=120.0),
        CheckSpec(name="hidden check 1", command="secret", hidden=True),
        CheckSpec(name="tree-clean", kind="tree-clean"),
    )
    assert (contract.setup, contract.room, contract.share, contract.guard) == (
        "npm ci",
        "clean",
        ("node_modules",),
        "strict",
    )
    assert (contract.guard_files, contract.waive) == (("golden/**",), ("tests/old/**",))
    assert (contract.fail_to_pass, contract.timeout) == (True, 300.0)


def test_pyproject_has_it_too_and_commands_alone_are_enough(tmp_path: Path, env: dict[str, str]) -> None:
    text = '[project]\nname = "x"\n\n[tool.untildone]\nmax_runs = 3\n\n[tool.untildone.contract]\nchecks = ["a", "b"]\n'
    file = written(tmp_path, text, "pyproject.toml")
    assert [check.name for check in spec_of(file, env).contract.checks] == ["a", "b"]
    assert from_file(file)["checks"].origin == "pyproject.toml:8"


def test_flags_take_the_place_of_what_the_file_says(tmp_path: Path, env: dict[str, str]) -> None:
    contract = spec_of(written(tmp_path, FULL), env, checks=("make",), guard="on").contract
    assert [check.name for check in contract.checks] == ["make", "tree-clean"]
    assert (contract.guard, contract.setup) == ("on", "npm ci")


@pytest.mark.parametrize(
    "part", ['setup = "x"', 'checks = ["x"]', 'guard = "off"', 'check_in = "tree"', 'waive = ["x"]']
)
def test_a_contract_counts_only_when_it_is_trusted(tmp_path: Path, env: dict[str, str], part: str) -> None:
    file = written(tmp_path, f"[contract]\n{part}\n")
    with pytest.raises(ConfigError, match=rf"sets {part.split(' ', maxsplit=1)[0]}: .*untildone config trust"):
        config.resolve({}, env=env, project_file=file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[contract]\nset_up = 'x'\n",
            r"untildone.toml:2: unknown key 'set_up' in \[contract\]: did you mean 'setup'\?",
        ),
        ("[contract]\n\nzzz = 1\n", r"untildone.toml:3: unknown key 'zzz'.*it has checks"),
        ("contract = 3\n", r"untildone.toml:1: contract must be a table"),
        ("checks = ['a']\n[contract]\nchecks = ['b']\n", r"untildone.toml:3: checks is set twice: .*untildone.toml:1"),
        ("[contract]\ntimeout = 3\ncheck_timeout = 3\n", r"untildone.toml:3: check_timeout is set twice"),
        (
            FULL.replace('run = "npm test"', 'cmd = "npm test"'),
            r"untildone.toml:18: checks number 2: unknown key 'cmd'",
        ),
        (FULL.replace('timeout = "2m"', "timeout = -1"), r"untildone.toml:18: checks number 2: timeout "),
        (FULL.replace('"strict"', '"stern"'), r"untildone.toml:7: guard must be one of off, on, strict"),
        (FULL.replace('["tree-clean"]', '["tidy"]'), r"untildone.toml:10: require must be among"),
        ("[contract]\nshare = ['/etc']\n", r"untildone.toml:2: share must be inside of the project"),
        ("a = 1\n\n\nmax_rums = 3\n", r"untildone.toml:1: unknown setting 'a'"),
        ("max_runs = 3\nmax_rums = 3\n", r"untildone.toml:2: unknown setting 'max_rums': did you mean 'max_runs'\?"),
    ],
)
def test_every_mistake_is_one_line_with_file_and_line(
    tmp_path: Path, env: dict[str, str], text: str, said: str
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError, match=said) as wrong:
        config.resolve({}, env=env, user_file=file)
    assert "\n" not in str(wrong.value)


# --- commits and landing -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "file", "land"),
    [
        ({}, "", "commit"),
        ({"commit": False}, "", "none"),
        ({"commit": False}, 'land = "pr"', "none"),
        ({"commit": True}, 'land = "pr"', "pr"),
        ({"commit": True}, 'land = "none"', "commit"),
        ({"commit": True}, "commit = false", "commit"),
        ({"land": "merge"}, "commit = false", "merge"),
        ({}, "commit = false", "none"),
        ({"land": "none", "commit": False}, "", "none"),
        ({"land": "pr", "commit": True}, "", "pr"),
    ],
)  # fmt: skip
def test_commits_on_and_off_are_older_words_for_landing(
    tmp_path: Path, env: dict[str, str], flags: dict[str, object], file: str, land: str
) -> None:
    assert spec_of(written(tmp_path, file), env, **flags).landing.land == land


@pytest.mark.parametrize(
    ("land", "commit", "said"),
    [("pr", False, "--disable-commits and --land pr contradict"), ("none", True, "--enable-commits and --land none")],
)
def test_contradicting_flags_are_refused(env: dict[str, str], land: str, commit: bool, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        config.resolve({"land": land, "commit": commit}, env=env)


def test_a_resumed_run_changes_only_what_is_typed(env: dict[str, str]) -> None:
    found = config.resolve({"checks": ("a",), "hidden_checks": ("h",), "land": "pr", "max_runs": "3"}, env=env)
    spec = config.run_spec(found, goal="g", cwd=Path("/w"), name="n")
    policy = config.policy(found, now=0.0)
    new, _ = config.changed({"checks": ("b",), "review": "landing", "base": "dev"}, spec, policy, now=0.0)
    assert [check.command for check in new.contract.checks] == ["b", "h"]
    assert (new.review.when, new.landing.base, new.landing.land) == ("landing", "dev", "pr")
    assert config.changed({"commit": False}, spec, policy, now=0.0)[0].landing.land == "none"
    assert config.changed({"commit": True}, spec, policy, now=0.0)[0].landing.land == "pr"
    with pytest.raises(UsageError, match="is what --land pr does itself"):
        config.changed({"require": ("pushed",)}, spec, policy, now=0.0)


def test_what_agents_may_run_is_said_by_the_user_alone(tmp_path: Path) -> None:
    own, project = tmp_path / "config.toml", tmp_path / "untildone.toml"
    for path in (own, project):
        path.write_text('[hook]\ndeny = ["make *"]\n')
    assert from_file(own) == {}
    with pytest.raises(ConfigError, match=r"untildone.toml:1: \[hook\] belongs in your own settings file"):
        from_file(project)


@pytest.mark.parametrize(
    "text", ["hook = 3\n", "[hook]\nforbid = []\n", "[hook]\ndeny = 'x'\n", "[hook]\nallow = [1]\n"]
)
def test_a_list_of_what_agents_may_run_is_a_list_of_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="two lists of text"):
        from_file(path)


# --- whatever somebody writes --------------------------------------------------------------------

WORDS = (
    "1h30m", "07:30", "9999-12-31T23:59", "0001-01-01T00:00", "5%", "99.99%", "512M", "9" * 30 + "T", "$5", "1e308",
    "nan", "http://x",
    "../x", "~", "~x/y", "pr", "resume", "pushed", "x,y(z", "'", "a b", "\x1b[31m", "\n", "a\0b", "0x10",
)  # fmt: skip
NUMBERS = ("9" * 4000, "9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000, "1e400", "9" * 400 + ".5", "-nan", "inf", "1.5")
PLAIN = st.one_of(
    st.integers().map(str), st.floats().map(repr), st.sampled_from(NUMBERS), st.sampled_from(("true", "false")),
    st.text(st.characters(blacklist_categories=("Cs",)), max_size=12).map(json.dumps),
    st.sampled_from(WORDS).map(json.dumps),
    st.sampled_from((date(2026, 1, 1), datetime(2026, 1, 1, 7, 30), time(7, 30))).map(str),  # noqa: DTZ001 -- as TOML has
)  # fmt: skip
KEYS = st.sampled_from(("name", "run", "timeout", "folder", "hidden", "x"))


def within(inner: "st.SearchStrategy[str]") -> "st.SearchStrategy[str]":
    tables = st.dictionaries(KEYS, inner, max_size=3)
    return st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        tables.map(lambda table: f"{{{', '.join(f'{key} = {value}' for key, value in table.items())}}}"),
    )


NAMES = st.sampled_from([setting.name for setting in SETTINGS])
VALUES = st.recursive(PLAIN, within, max_leaves=5)


@given(lines=st.dictionaries(NAMES, VALUES, min_size=1, max_size=2), in_contract=st.booleans())
@example(lines={"max_runs": "9" * 5000}, in_contract=False)
@example(lines={"max_runs": "0x" + "f" * 5000}, in_contract=False)
@example(lines={"disk_reserve": json.dumps("9" * 400)}, in_contract=False)
@example(lines={"model": json.dumps("a\0b")}, in_contract=False)
def test_whatever_a_file_sets_is_a_run_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, lines: dict[str, str], *, in_contract: bool
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-settings"
    folder.mkdir(exist_ok=True)
    file = folder / "any.toml"
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    file.write_text(("[contract]\n" if in_contract else "") + text, encoding="utf-8")
    try:
        found = config.resolve({"max_runs": "3"}, env={"HOME": "/"}, user_file=file, here=folder)
        limits = config.policy(found, now=1e9)
        spec = config.run_spec(found, goal="g", cwd=folder, name="n")
    except UntildoneError as wrong:
        told = wrong
    else:
        assert json.loads(json.dumps([asdict(spec), asdict(limits)]))
        assert preview_text(spec, limits)
        return
    assert (told.exit_code, str(told).isprintable(), len(str(told)) < 600) == (2, True, True), told


@given(st.binary(max_size=60))
@example(b"[tool.untildone]\nx = 1\n")
@example(b"tool = 3\n")
@example(b"[tool]\nuntildone = 3\n")
def test_whatever_lies_there_as_a_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    for name in ("untildone.toml", "pyproject.toml"):
        folder = tmp_path_factory.getbasetemp() / "any-file"
        folder.mkdir(exist_ok=True)
        file = folder / name
        file.write_bytes(content)
        with suppress(ConfigError):
            from_file(file)


def test_a_mountain_is_no_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "untildone.toml"
    with file.open("wb") as mountain:
        mountain.truncate(1 << 30)
    with pytest.raises(ConfigError, match="too large to be a settings file"):
        from_file(file)
