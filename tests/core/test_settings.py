from collections import Counter
from dataclasses import fields

import pytest

from untildone.core.limits import LIMIT_FIELDS
from untildone.core.setting import tightens
from untildone.core.settings import ARGUMENTS, BY_NAME, GROUPS, HOMES, PROFILES, SETTINGS, Setting, as_typed

NESTED = {"options", "tending", "contract", "landing", "review", "earlier"}
READ_AT_THE_START = {"then_goals"}


@pytest.mark.parametrize("home", HOMES)
def test_every_field_has_a_setting_and_every_setting_a_field(home: str) -> None:
    wanted = {field.name for field in fields(HOMES[home])}
    if home == "spec":
        wanted -= {*ARGUMENTS, *NESTED, *READ_AT_THE_START}
    assert {setting.field for setting in SETTINGS if setting.home == home} == wanted


def test_names_flags_and_variables_are_unique() -> None:
    names = Counter(setting.name for setting in SETTINGS)
    flags = Counter(flag for setting in SETTINGS for flag in (*setting.flags, *setting.off_flags))
    variables = Counter(name for setting in SETTINGS for name in setting.env)
    assert [word for counter in (names, flags, variables) for word, count in counter.items() if count > 1] == []


def test_settings_explain_themselves_only_where_no_field_does() -> None:
    typed_otherwise = {
        "deadline", "start_at", "dirty", "agent", "max_duration", "max_wait", "idle_timeout", "iteration_timeout",
    }  # fmt: skip
    explained = {setting.name for setting in SETTINGS if setting.help}
    assert explained == {setting.name for setting in SETTINGS if setting.home == "cli"} | typed_otherwise


def test_every_group_is_used_and_known() -> None:
    assert {setting.group for setting in SETTINGS} == set(GROUPS)


@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.choices], ids=lambda s: s.name)
def test_choices_accept_exactly_themselves(setting: Setting) -> None:
    assert [setting.parse(choice) for choice in setting.choices] == list(setting.choices)
    with pytest.raises(ValueError, match="must be one of"):
        setting.parse("nonsense")


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_name_real_settings_and_give_no_rights(profile: str) -> None:
    assert [name for name in PROFILES[profile] if name not in BY_NAME] == []
    assert [name for name in PROFILES[profile] if BY_NAME[name].home not in {"policy", "spec"}] == []


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_values_have_the_type_of_the_field(profile: str) -> None:
    for name, value in PROFILES[profile].items():
        default = BY_NAME[name].default
        assert default is None or type(value) is type(default), name


def test_the_limits_of_the_core_are_the_limits_people_can_set() -> None:
    group = {setting.field for setting in SETTINGS if setting.group == "limits"}
    assert group == {*LIMIT_FIELDS, "unbounded"}


def test_only_a_short_list_is_open_to_a_file_that_is_not_trusted() -> None:
    limits = {"max_runs", "max_iterations", "max_cost_usd", "max_tokens", "max_duration", "max_calls_per_hour"}
    open_ones = {setting.name for setting in SETTINGS if setting.untrusted is not None}
    assert open_ones == limits | {"max_iteration_cost_usd", "max_turns", "verbose"}


@pytest.mark.parametrize(
    ("value", "without", "is_open"),
    [
        (3, None, True), (3, 5, True), (5, 5, True), (6, 5, False), (None, 5, False), (None, None, True),
        (1e9, None, True),
    ],
)  # fmt: skip
def test_a_limit_of_a_file_that_is_not_trusted_only_tightens(
    value: float | None, without: float | None, *, is_open: bool
) -> None:
    assert tightens(value, without) is is_open


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("model", None, ""), ("wait", True, "on"), ("wait", False, "off"), ("max_duration", 5400.0, "1h30m"),
        ("allowed_tools", ("Read", "Edit"), "Read, Edit"), ("disk_reserve", 512 << 20, "512M"),
        ("keep_quota", 0.3, "30%"), ("output_decline_threshold", 70, "70"), ("max_cost_usd", 2.5, "2.5"),
    ],
)  # fmt: skip
def test_values_are_shown_as_they_are_typed(name: str, value: object, written: str) -> None:
    setting = BY_NAME[name]
    assert as_typed(setting, value) == written
    assert not written or setting.parse(written) == value
