from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from untildone import config
from untildone.core.policy import Policy, RunSpec
from untildone.core.settings import SETTINGS, Setting
from untildone.errors import ConfigError, UsageError

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()

# For each kind of value: one way to write it, and one that must lose against it.
SAMPLES = {
    "N": ("7", "8"), "USD": ("1.5", "2"), "DURATION": ("5m", "6m"), "HH:MM": ("07:30", "08:30"), "TEXT": ("one", "two"),
    "CMD": ("one", "two"), "PERCENT": ("10", "20"), "PROGRAM": ("one", "two"), "MODEL": ("one", "two"),
    "MODE": ("plan", "default"), "TOOLS": ("Edit", "Read"), "DIR": ("/one", "/two"), "FILE": ("/one", "/two"),
    "ARGS": ("--one", "--two"), "PREFIX": ("one/", "two/"), "": ("true", "false"),
    "CONDITION": ("pushed", "ci-green"), "FOLDER": ("one", "two"), "GLOB": ("one", "two"), "NAME": ("one", "two"),
    "BRANCH": ("one", "two"), "BRANCH[:BASE]": ("one", "two"), "OWNER": ("one", "two"), "OWNER/NAME": ("a/b", "c/d"),
    "SIZE": ("1G", "2G"), "MODELS": ("one", "two"), "URL": ("http://one", "http://two"),
    "PATTERN": ("one", "two"), "RULE": ("one", "two"), "HOST": ("one", "two"), "TITLE": ("one", "two"),
    "IMAGE": ("one", "two"),
}  # fmt: skip


def sample(setting: Setting) -> tuple[str, str]:
    return (setting.choices[0], setting.choices[1]) if setting.choices else SAMPLES[setting.kind]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "UNTILDONE_HOME": str(tmp_path / "state")}


def on_command_line(setting: Setting, text: str) -> object:
    if setting.repeatable:
        return (text,)
    return text == "true" if not setting.kind else text


def test_rules_that_are_added_add_up_over_all_places(tmp_path: Path, env: dict[str, str]) -> None:
    mine = write(tmp_path / "untildone.toml", 'allow_tools = ["Bash(gh:*)", "WebFetch"]\n')
    config.trust(mine, config.state_dir(env))
    variables = env | {"UNTILDONE_ALLOW_TOOLS": "Bash(docker:*)"}
    found = config.resolve({"allow_tools": ("Bash(gh:*)",)}, env=variables, project_file=mine, here=tmp_path)
    assert found.value("allow_tools") == ("Bash(gh:*)", "WebFetch", "Bash(docker:*)")
    assert found.origin("allow_tools") == "--allow-tool, environment UNTILDONE_ALLOW_TOOLS, untildone.toml:1"
    spec = config.run_spec(found, goal="g", cwd=tmp_path, name="n")
    again, _ = config.changed({"allow_tools": ("Bash(ssh:*)",)}, spec, Policy(max_runs=1), now=0.0)
    assert again.options.allow_tools == ("Bash(gh:*)", "WebFetch", "Bash(docker:*)", "Bash(ssh:*)")


def test_what_adds_up_is_not_overruled_so_a_project_needs_trust_for_it(tmp_path: Path, env: dict[str, str]) -> None:
    theirs = write(tmp_path / "untildone.toml", 'allow_tools = ["Bash(gh:*)"]\n')
    with pytest.raises(ConfigError, match="sets allow_tools"):
        config.resolve({"allow_tools": ("WebFetch",)}, env=env, project_file=theirs, here=tmp_path)


NIGHT = datetime(2026, 3, 10, 22, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("start", "deadline", "hours", "deadline_hours"),
    [
        ("01:00", None, 3, None), ("01:00", "07:30", 3, 9.5), ("23:00", "22:30", 1, 24.5), ("22:00", None, 24, None),
        ("2026-03-12T01:00", "07:30", 27, 33.5), (None, "07:30", None, 9.5),
    ],
)  # fmt: skip
def test_a_start_is_the_next_such_time_and_the_deadline_the_first_after_it(
    start: str | None, deadline: str | None, hours: float | None, deadline_hours: float | None
) -> None:
    resolved = config.resolve({"max_runs": "3", "start_at": start, "deadline": deadline}, env={"HOME": "/"})
    agreed = config.policy(resolved, now=NIGHT, zone=UTC)
    wanted = [None if h is None else NIGHT + h * 3600 for h in (hours, deadline_hours)]
    assert [agreed.start_at, agreed.deadline] == wanted


def test_a_start_in_the_night_the_clocks_change_is_that_time_on_the_wall() -> None:
    zone = ZoneInfo("Europe/Berlin")
    evening = datetime(2026, 3, 28, 22, 0, tzinfo=zone).timestamp()
    resolved = config.resolve({"max_runs": "3", "start_at": "04:00"}, env={"HOME": "/"})
    agreed = config.policy(resolved, now=evening, zone=zone)
    assert agreed.start_at == datetime(2026, 3, 29, 4, 0, tzinfo=zone).timestamp() == evening + 5 * 3600


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"start_at": "2026-03-01T01:00"}, "the start 2026-03-01T01:00:00 has already passed"),
        ({"start_at": "01:00", "deadline": "2026-03-10T23:00"}, "comes before the start 01:00"),
        ({"start_at": "25:00"}, "--at must be a time such as 07:30"),
    ],
)
def test_a_start_that_cannot_be_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        config.policy(config.resolve({"max_runs": "3", **given}, env={"HOME": "/"}), now=NIGHT, zone=UTC)


@pytest.mark.parametrize("setting", [s for s in SETTINGS if not s.adds], ids=lambda s: s.name)
def test_command_line_beats_environment_beats_project_beats_user_beats_default(
    setting: Setting, tmp_path: Path, env: dict[str, str]
) -> None:
    if not setting.in_files:
        env = {"HOME": env["HOME"]}
    wins, loses = sample(setting)

    def resolved(cli: str | None, variable: str | None, project: str | None, user: str | None) -> tuple[object, str]:
        variables = env | ({setting.env[0]: variable} if variable else {})
        files = [
            write(tmp_path / name / "untildone.toml", f"{setting.name} = {toml(setting, text)}\n") if text else None
            for name, text in (("project", project), ("user", user))
        ]
        if files[0]:
            config.trust(files[0], config.state_dir(variables))
        cli_values = {setting.name: on_command_line(setting, cli)} if cli else {}
        found = config.resolve(cli_values, env=variables, project_file=files[0], user_file=files[1], here=tmp_path)
        return found.value(setting.name), found.origin(setting.name)

    expected = setting.parse(wins)
    assert resolved(wins, loses, None, None)[0] == expected
    assert resolved(None, wins, None, None) == (expected, f"environment {setting.env[0]}")
    if setting.in_files:
        assert resolved(None, wins, loses, loses)[0] == expected
        assert resolved(None, None, wins, loses) == (expected, "untildone.toml:1")
        assert resolved(None, None, None, wins) == (expected, "untildone.toml:1")
        assert resolved(None, None, None, None) == (setting.default, "default")


def toml(setting: Setting, text: str) -> str:
    if not setting.kind:
        return text
    return f'["{text}"]' if setting.repeatable else f'"{text}"'


def test_a_flag_equal_to_the_default_still_wins(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "untildone.toml", "error_threshold = 9\ncommit = false\n")
    config.trust(file, config.state_dir(env))
    found = config.resolve({"error_threshold": "3", "commit": True}, env=env, project_file=file)
    assert (found.value("error_threshold"), found.origin("error_threshold")) == (3, "--error-threshold")
    assert (found.value("commit"), found.origin("commit")) == (True, "--enable-commits")


def test_profile_stands_between_files_and_defaults(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "c.toml", 'profile = "clawker"\nmax_calls_per_hour = 0\n')
    found = config.resolve({}, env=env, user_file=file)
    assert found.value("max_iterations") == 50
    assert found.value("iteration_timeout") == 900.0
    assert found.origin("max_iterations") == "profile clawker (c.toml:1)"
    assert found.value("max_calls_per_hour") is None
    assert found.notices == ()


def test_older_environment_names_and_plain_seconds(env: dict[str, str]) -> None:
    older = {
        "CONTINUOUS_MAX_RUNS": "4", "CONTINUOUS_MAX_COST_USD": "2.5", "CONTINUOUS_MAX_DURATION": "3600",
        "CONTINUOUS_COMPLETION_SIGNAL": "FINISHED", "CONTINUOUS_COMPLETION_THRESHOLD": "2",
        "CONTINUOUS_NOTES_FILE": "N.md", "CONTINUOUS_ENABLE_COMMITS": "false", "CONTINUOUS_BRANCH_PREFIX": "cc/",
    }  # fmt: skip
    found = config.resolve({}, env=env | older)
    names = ["max_runs", "max_cost_usd", "max_duration", "completion_signal", "completion_threshold", "notes_file"]
    assert [found.value(name) for name in names] == [4, 2.5, 3600.0, "FINISHED", 2, "N.md"]
    assert (found.value("commit"), found.value("branch_prefix")) == (False, "cc/")
    assert found.origin("max_runs") == "environment CONTINUOUS_MAX_RUNS"
    assert config.resolve({}, env=env | older | {"UNTILDONE_MAX_RUNS": "5"}).value("max_runs") == 5


def test_an_empty_variable_is_not_given(env: dict[str, str]) -> None:
    assert config.resolve({}, env=env | {"UNTILDONE_MAX_RUNS": ""}).origin("max_runs") == "default"


def test_a_bare_timeout_is_minutes_and_says_so(env: dict[str, str]) -> None:
    found = config.resolve({"iteration_timeout": "15"}, env=env)
    assert found.value("iteration_timeout") == 900
    assert found.notices == ("--timeout 15 is read as 15 minutes; write 15m or 15s to be clear",)
    assert config.resolve({"iteration_timeout": "15m"}, env=env).notices == ()
    assert config.resolve({"iteration_timeout": "0"}, env=env).value("iteration_timeout") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_run = 3\n", "unknown setting 'max_run': did you mean 'max_runs'?"),
        ("max-runs = 3\n", "did you mean 'max_runs'?"),
        ("qqqqq = 3\n", "`untildone config` lists all of them"),
        ("[limits]\nmax_runs = 3\n", "unknown setting 'limits'"),
        ('store = "/x"\n', "store cannot be set in a file: use --store or UNTILDONE_HOME"),
        ("max_runs = \n", r"is not valid TOML: .*line 1"),
        ("max_runs = true\n", "untildone.toml:1: max_runs must be a whole number, not True"),
        ("\nmax_duration = 90\n", "untildone.toml:2: max_duration cannot be read: '90' is not a duration"),
        ('model = ""\n', "model must not be empty"),
        ("a = " + "[" * 5000, "nested too deeply|not valid TOML"),
    ],
)
def test_a_wrong_file_is_one_line_naming_file_and_key(
    tmp_path: Path, env: dict[str, str], text: str, message: str
) -> None:
    file = write(tmp_path / "untildone.toml", text)
    with pytest.raises(ConfigError, match=message) as wrong:
        config.resolve({}, env=env, project_file=file)
    assert "\n" not in str(wrong.value)
    assert "untildone.toml" in str(wrong.value)


def test_a_file_that_is_not_text_or_not_there(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "untildone.toml").write_bytes(b'model = "\xff"\n')
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        config.resolve({}, env=env, user_file=tmp_path / "untildone.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        config.resolve({}, env=env, user_file=tmp_path)


def test_a_wrong_flag_names_the_flag(env: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="--max-runs must be a whole number, not 'ten'"):
        config.resolve({"max_runs": "ten"}, env=env)


# --- files of the project -----------------------------------------------------------------------


def test_the_project_file_is_found_in_the_folder_then_in_the_repository_root(tmp_path: Path) -> None:
    inner = tmp_path / "repo" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    write(tmp_path / "untildone.toml", "")
    assert config.project_file(inner) is None, "what lies above the repository is not the project's"
    root = write(tmp_path / "repo" / "untildone.toml", "")
    assert config.project_file(inner) == root
    write(inner / "pyproject.toml", "[project]\n")
    assert config.project_file(inner) == root
    pyproject = write(inner / "pyproject.toml", "[tool.untildone]\nmax_runs = 3\n")
    assert config.project_file(inner) == pyproject
    own = write(inner / "untildone.toml", "")
    assert config.project_file(inner) == own


def test_pyproject_holds_settings_too(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "pyproject.toml", '[project]\nname = "x"\n\n[tool.untildone]\nmax_runs = 3\n')
    found = config.resolve({}, env=env, project_file=file)
    assert (found.value("max_runs"), found.origin("max_runs")) == (3, "pyproject.toml:5")


OPEN = {setting.name for setting in SETTINGS if setting.untrusted is not None}


@pytest.mark.parametrize("name", sorted({s.name for s in SETTINGS if s.in_files} - OPEN))
def test_a_project_file_decides_nothing_until_it_is_trusted(tmp_path: Path, env: dict[str, str], name: str) -> None:
    written = toml(config.BY_NAME[name], sample(config.BY_NAME[name])[0])
    file = write(tmp_path / "untildone.toml", f"max_runs = 3\n{name} = {written}\n")
    with pytest.raises(ConfigError, match=f"is not trusted and sets {name}: .*untildone config trust"):
        config.resolve({}, env=env, project_file=file)
    config.trust(file, config.state_dir(env))
    assert config.resolve({}, env=env, project_file=file).origin(name) == "untildone.toml:2"


def test_a_file_that_is_not_trusted_may_lower_limits_and_not_raise_them(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "untildone.toml", "max_runs = 3\nmax_cost_usd = 5\n")
    found = config.resolve({}, env=env | {"UNTILDONE_MAX_ITERATIONS": "9"}, project_file=file)
    assert (found.value("max_runs"), found.value("max_cost_usd")) == (3, 5.0)
    assert config.policy(found, now=NOON) == Policy(max_runs=3, max_cost_usd=5.0, max_iterations=9)
    own = write(tmp_path / "config.toml", "max_runs = 2\nmax_cost_usd = 6\n")
    with pytest.raises(ConfigError, match=r"sets max_runs: .*only lower limits"):
        config.resolve({}, env=env, project_file=file, user_file=own)
    assert config.resolve({"max_runs": "2"}, env=env, project_file=file, user_file=own).value("max_cost_usd") == 5.0
    write(file, "max_runs = 0\n")
    with pytest.raises(ConfigError, match="sets max_runs"):
        config.resolve({}, env=env, project_file=file, user_file=own)


def test_limits_of_a_file_that_is_not_trusted_permit_no_run(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "untildone.toml", "max_iterations = 1_000_000_000\n")
    with pytest.raises(UsageError, match=r"nothing limits this run: .*config trust"):
        config.policy(config.resolve({}, env=env, project_file=file), now=NOON)
    config.trust(file, config.state_dir(env))
    assert config.policy(config.resolve({}, env=env, project_file=file), now=NOON).max_iterations == 10**9


def test_trust_ends_when_the_file_changes_or_moves(tmp_path: Path, env: dict[str, str]) -> None:
    store = config.state_dir(env)
    file = write(tmp_path / "untildone.toml", 'on_stop = "x"\n')

    def is_trusted(path: Path) -> bool:
        return config.is_trusted(path, store, path.read_bytes())

    config.trust(file, store)
    assert is_trusted(file)
    assert not is_trusted(write(tmp_path / "other" / "untildone.toml", 'on_stop = "x"\n'))
    write(file, 'on_stop = "y"\n')
    assert not is_trusted(file)


def test_an_overruled_command_needs_no_trust(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "untildone.toml", 'on_stop = "x"\n')
    assert config.resolve({"on_stop": "mine"}, env=env, project_file=file).value("on_stop") == "mine"


def test_the_users_own_file_needs_no_trust(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "config.toml", 'on_stop = "x"\n')
    assert config.resolve({}, env=env, user_file=file).value("on_stop") == "x"


def test_paths_mean_the_folder_they_were_written_in(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path / "repo" / "untildone.toml", 'hooks_file = "./h.json"\nadd_dirs = ["../lib"]\n')
    config.trust(file, config.state_dir(env))
    found = config.resolve({"mcp_config": ('{"a": "b/c"}',), "claude": "claude"}, env=env, project_file=file)
    assert found.value("hooks_file") == str(tmp_path / "repo" / "h.json")
    assert found.value("add_dirs") == (str(tmp_path / "repo" / ".." / "lib"),)
    assert found.value("mcp_config") == ('{"a": "b/c"}',)
    assert found.value("claude") == "claude"


# --- places --------------------------------------------------------------------------------------


def test_state_and_user_folders_follow_the_environment(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert config.state_dir(home) == tmp_path / ".local/state/untildone"
    assert config.state_dir(home | {"XDG_STATE_HOME": "/x"}) == Path("/x/untildone")
    assert config.state_dir(home | {"XDG_STATE_HOME": "relative"}) == tmp_path / ".local/state/untildone"
    assert config.state_dir(home | {"XDG_STATE_HOME": "/x", "UNTILDONE_HOME": "/y"}) == Path("/y")
    assert config.user_file(home) is None
    file = write(tmp_path / ".config" / "untildone" / "config.toml", "")
    assert config.user_file(home) == file


def test_names_are_stable_readable_and_differ_by_folder_and_goal() -> None:
    name = config.run_name(Path("/code/shop"), "Fix the flaky login test\nand more")
    assert name.startswith("shop-fix-the-flaky-login-test-")
    assert name == config.run_name(Path("/code/shop"), "Fix the flaky login test\nand more")
    assert name != config.run_name(Path("/other/shop"), "Fix the flaky login test\nand more")
    assert name != config.run_name(Path("/code/shop"), "Fix the flaky login test\nand less")
    assert len(config.run_name(Path("/p"), "word " * 500)) < 40
    assert config.run_name(Path("/"), "目标").startswith("run-")


# --- values for the core -------------------------------------------------------------------------


def test_a_run_without_any_limit_is_refused_naming_both_ways_out(env: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"--max-runs.*--unbounded"):
        config.policy(config.resolve({}, env=env), now=NOON)
    with pytest.raises(UsageError, match="--unbounded"):
        config.policy(config.resolve({"max_runs": "0", "max_calls_per_hour": "5"}, env=env), now=NOON)
    assert config.policy(config.resolve({"unbounded": True}, env=env), now=NOON) == Policy(unbounded=True)


def test_defaults_make_the_default_policy_and_spec(env: dict[str, str]) -> None:
    found = config.resolve({"max_runs": "3"}, env=env)
    assert config.policy(found, now=NOON) == Policy(max_runs=3)
    spec = config.run_spec(found, goal="g", cwd=Path("/w"), name="n")
    assert spec == RunSpec(goal="g", cwd="/w", name="n")
    kept = config.resolve({"dirty": "keep", "hook_timeout": "9"}, env=env)
    assert config.run_spec(kept, goal="g", cwd=Path("/w"), name="n").keep_dirty
    assert config.run_spec(kept, goal="g", cwd=Path("/w"), name="n").tending.timeout == 9


@pytest.mark.parametrize(
    ("written", "hours"),
    [("13:00", 1), ("07:30", 19.5), ("12:00", 24), ("2026-03-01T14:00", 2), ("2026-03-01T14:00+02:00", 0)],
)
def test_a_deadline_is_the_next_such_moment(written: str, hours: float) -> None:
    assert config.deadline_at(written, NOON, UTC) == NOON + hours * 3600


class SpringForward(tzinfo):
    """Clocks go from 02:00 to 03:00 on the 29th of March, as in central Europe."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        assert dt is not None
        return timedelta(hours=2 if dt.replace(tzinfo=None) >= datetime(2026, 3, 29, 2) else 1)  # noqa: DTZ001 -- wall

    def dst(self, dt: datetime | None) -> timedelta:
        return self.utcoffset(dt) - timedelta(hours=1)

    def tzname(self, dt: datetime | None) -> str:
        return "test"


def test_a_deadline_after_the_clocks_change_is_still_that_time_of_day() -> None:
    zone = SpringForward()
    evening = datetime(2026, 3, 28, 22, 0, tzinfo=zone).timestamp()
    assert config.deadline_at("07:30", evening, zone) == evening + 8.5 * 3600


def test_a_deadline_means_the_users_own_clock(env: dict[str, str]) -> None:
    found = config.resolve({"deadline": "15:30"}, env=env)
    tokyo = timezone(timedelta(hours=9))
    assert config.policy(found, now=NOON, zone=tokyo).deadline == NOON + 18.5 * 3600
    past = config.resolve({"deadline": "2020-01-01T00:00"}, env=env)
    with pytest.raises(UsageError, match="already passed"):
        config.policy(past, now=NOON)


def test_names_no_disk_takes_are_simply_not_there(tmp_path: Path) -> None:
    long, servers = "a" * 300, '{"mcpServers": {"' + "a" * 300 + '": {}}}'
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": f"/{long}", "UNTILDONE_HOME": f"/{long}"}
    assert config.user_file(env) is None
    (tmp_path / "untildone.toml").write_text('model = "opus"\n')
    found = config.resolve({"mcp_config": (servers, "~nobody-of-that-name/m.json")}, env=env, here=tmp_path)
    assert found.value("mcp_config") == (servers, f"{tmp_path}/~nobody-of-that-name/m.json")
    assert config.resolve({}, env=env, user_file=config.project_file(tmp_path)).value("model") == "opus"
    with pytest.raises(ConfigError, match="cannot be written: File name too long"):
        config.trust(tmp_path / "untildone.toml", config.state_dir(env))
