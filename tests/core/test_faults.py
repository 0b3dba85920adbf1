"""From evidence to a named fault: every sign of the table, and words that must not be taken for one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.core.faults import BY_THE_LOOP, FAULTS, SIGNS, classify
from untildone.core.outcome import FaultEvidence

DEAD: dict[str, Any] = {"has_result": False}
API: dict[str, Any] = {"subtype": "success", "terminal_reason": "api_error"}
OURS: dict[str, Any] = {"subtype": "error_during_execution"}


@pytest.mark.parametrize(
    ("evidence", "fault"),
    [
        ({**API, "api_error_status": 429, "api_error": "usage_limit_reached"}, "usage_limit"),
        ({**API, "api_error_status": 429, "api_error": "rate_limit", "resets_at": 1.0}, "usage_limit"),
        ({"subtype": "success", "text": "Claude AI usage limit reached|1794777584"}, "usage_limit"),
        ({"terminal_reason": "budget_exhausted"}, "budget_exhausted"),
        ({"subtype": "error_max_budget_usd"}, "budget_exhausted"),
        ({"terminal_reason": "max_turns"}, "turns_exhausted"),
        ({"subtype": "error_max_turns"}, "turns_exhausted"),
        ({"terminal_reason": "prompt_too_long", "api_error_status": 400}, "context_too_long"),
        ({"terminal_reason": "rapid_refill_breaker"}, "context_too_long"),
        ({**API, "api_error_status": 413}, "context_too_long"),
        ({**API, "api_error": "billing_error", "api_error_status": 400}, "billing"),
        ({**API, "api_error": "account_on_hold", "api_error_status": 403}, "billing"),
        ({**API, "api_error_status": 401}, "authentication"),
        ({**API, "api_error_status": 403}, "authentication"),
        ({**API, "api_error": "oauth_org_not_allowed"}, "authentication"),
        ({**API, "api_error_status": 404}, "model_not_found"),
        ({**API, "api_error_status": 429}, "rate_limit"),
        ({**DEAD, "api_error_status": 429, "api_error": "rate_limit"}, "rate_limit"),
        ({**API, "api_error_status": 529, "api_error": "server_error"}, "overloaded"),
        ({**API, "api_error_status": 500}, "server_error"),
        ({**API, "api_error_status": 503}, "server_error"),
        ({**API, "stop_reason": "refusal"}, "refusal"),
        ({**API, "stop_reason": "max_tokens"}, "model_error"),
        ({"terminal_reason": "model_error"}, "model_error"),
        ({**API, "api_error_status": 400}, "invalid_request"),
        ({**API}, "network"),
        ({**DEAD, "api_error": "unknown", "exit_code": 1}, "network"),
        ({**OURS, "text": "No conversation found with session ID: x"}, "session_lost"),
        ({**DEAD, "text": "No conversation found with session ID: x", "exit_code": 1}, "session_lost"),
        ({**DEAD, "text": "ENOSPC: no space left on device, write", "exit_code": 1}, "disk_full"),
        ({**OURS, "text": "Error: ENOSPC: no space left on device, mkdir '/x'"}, "disk_full"),
        ({**DEAD, "signal": 9, "exit_code": -9, "starved": True}, "out_of_memory"),
        ({**DEAD, "exit_code": 137, "starved": True}, "out_of_memory"),
        ({**DEAD, "signal": 9, "exit_code": -9}, "crash"),
        ({**DEAD, "exit_code": 137}, "crash"),
        ({**DEAD, "signal": 11, "exit_code": -11, "starved": True}, "crash"),
        ({**DEAD, "signal": 11, "exit_code": -11}, "crash"),
        ({**DEAD, "exit_code": 139}, "crash"),
        ({**DEAD, "exit_code": 1}, "no_result"),
        ({**DEAD}, "no_result"),
        ({"terminal_reason": "malformed_tool_use_exhausted"}, "model_error"),
        ({}, "model_error"),
    ],
)
def test_evidence_has_a_name(evidence: dict[str, Any], fault: str) -> None:
    assert classify(FaultEvidence(**evidence)).name == fault


def test_every_fault_is_judged_or_known_to_the_loop_and_never_both() -> None:
    judged = {sign.fault.name for sign in SIGNS}
    assert judged | set(BY_THE_LOOP) == set(FAULTS)
    assert judged & set(BY_THE_LOOP) == set()


RED_HERRINGS = (
    "5-hour limit reached", "You've hit your 5-hour limit · resets 9pm", "Claude AI usage limit reached|1794777584",
    "429 Too Many Requests", "rate limit", "PR 4290", "529 overloaded", "ENOSPC: no space left on device",
    "invalid api key", "No conversation found with session ID: x", "Credit balance is too low", "HTTP 401",
    "prompt is too long",
)  # fmt: skip
STRUCTURED = (
    {**API, "api_error_status": 500},
    {**API, "api_error_status": 529},
    {**API, "api_error_status": 429},
    {**API, "stop_reason": "refusal"},
    {"terminal_reason": "max_turns", "subtype": "error_max_turns"},
    {"terminal_reason": "model_error"},
    {**DEAD, "api_error": "rate_limit", "api_error_status": 429},
    {**DEAD, "api_error": "unknown"},
    {**API, "api_error": "authentication_failed", "api_error_status": 401},
)


@pytest.mark.parametrize("words", RED_HERRINGS)
@pytest.mark.parametrize("evidence", STRUCTURED, ids=str)
def test_where_a_field_tells_words_do_not(words: str, evidence: dict[str, Any]) -> None:
    assert classify(FaultEvidence(**evidence, text=words)) is classify(FaultEvidence(**evidence))


@pytest.mark.parametrize("words", RED_HERRINGS)
def test_what_a_model_wrote_is_no_sign_though_no_field_tells(words: str) -> None:
    quoted = FaultEvidence(subtype="success", text=f"I changed the message to: {words}")
    assert classify(quoted).name == "model_error"


words = st.none() | st.sampled_from(
    ["api_error", "success", "error_x", "rate_limit", "unknown", "refusal", "max_turns", "model_error", ""]
)


@given(
    st.builds(
        FaultEvidence,
        subtype=words, terminal_reason=words, api_error=words, stop_reason=words, text=st.text(max_size=20),
        api_error_status=st.none() | st.integers(100, 999), resets_at=st.none() | st.floats(0, 1e10),
        has_result=st.booleans(), exit_code=st.none() | st.integers(-64, 255), signal=st.none() | st.integers(1, 64),
    )
)  # fmt: skip
def test_all_evidence_has_a_name(evidence: FaultEvidence) -> None:
    assert classify(evidence).name in FAULTS
