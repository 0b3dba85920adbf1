"""Reading what the agent hands to the report tool."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from untildone.core import claims
from untildone.core.claims import REPORT_SCHEMA, Report, report_from

# How fast a loaded machine draws examples is not what this test is about.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_the_schema_has_exactly_the_fields_of_a_report() -> None:
    properties = REPORT_SCHEMA["properties"]
    assert isinstance(properties, dict)
    assert list(properties) == list(Report.__dataclass_fields__)
    assert all(value["description"] for value in properties.values())
    assert REPORT_SCHEMA["required"] == ["status", "exit_signal"]
    assert REPORT_SCHEMA["additionalProperties"] is False


def test_a_report_is_read() -> None:
    data = {
        "status": "complete",
        "exit_signal": True,
        "tasks_completed": 2,
        "files_modified": 4.0,
        "tests_status": "PASSING",
        "work_type": "refactoring",
        "summary": "one\nline",
        "recommendation": "next",
        "assumptions": ["a", "", 3, "b"],
        "questions": "why?",
    }
    assert report_from(data) == Report(
        status="COMPLETE",
        exit_signal=True,
        tasks_completed=2,
        files_modified=4,
        tests_status="PASSING",
        work_type="REFACTORING",
        summary="one line",
        recommendation="next",
        assumptions=("a", "b"),
        questions=("why?",),
    )


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), (False, False), ("TRUE", True), ("false", False), (1, None), ("yes", None)]
)
def test_the_exit_signal_must_be_a_truth_value(value: object, expected: bool | None) -> None:
    assert report_from({"exit_signal": value}).exit_signal is expected


@pytest.mark.parametrize("value", [-1, True, float("nan"), float("inf"), float("-inf"), "x", None, [], "-1", "٣"])
def test_a_wrong_count_is_zero(value: object) -> None:
    assert report_from({"tasks_completed": value}).tasks_completed == 0


def test_a_report_is_capped_and_cleaned() -> None:
    report = report_from(
        {
            "summary": "s" * 9999,
            "recommendation": "\x1b[31mred\x00\ud800\x9b",
            "questions": ["q" * 9999] * 99,
            "files_modified": 10**30,
        }
    )
    assert len(report.summary) == 2000
    assert report.recommendation == "[31mred?"
    assert [len(question) for question in report.questions] == [2000] * 20
    assert report.files_modified == claims.COUNT_CAP


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("aZ0_ \n\x00\x1b\ud800<|:é", max_size=30),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("ab"), inner, max_size=3),
    max_leaves=10,
)


@unhurried
@given(st.dictionaries(st.sampled_from([*Report.__dataclass_fields__, "other"]), json_like))
def test_any_report_can_be_read(data: dict[str, object]) -> None:
    report = report_from(data)
    assert report.status in claims.STATUSES
    assert report.tests_status in claims.TESTS_STATUSES
    assert report.work_type in claims.WORK_TYPES
    assert 0 <= report.tasks_completed <= claims.COUNT_CAP
    report.summary.encode()
