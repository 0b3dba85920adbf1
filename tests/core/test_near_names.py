"""Names that are a slip away from one of ours, and names that are somebody else's."""

import pytest

from untildone.core.near_names import nearest, slips
from untildone.core.worker_table import BY_VARIABLE

OF_OTHERS = """\
PATH HOME PWD OLDPWD TERM LANG USER SHELL HOSTNAME GITHUB_REF GITHUB_REPOSITORY GITHUB_ACTOR GITHUB_SHA GITHUB_ENV
GITHUB_JOB GITHUB_RUN_ID GITHUB_TOKENS GH_TOKEN GH_REPO GITLAB_TOKEN GITEA_TOKEN GITHUB_PAT BRANCH GIT_BRANCH MODEL_NAME
MODELS AGENT_IP AGENT_NAME TASK_IDS TASK_NAME MAX_TOKENS MAX_RUNS SANDBOX SANDBOX_IP SANDBOX_URL SANDBOX_IDS IS_SANDBOX
ANTHROPIC_API_KEY_2 ANTHROPIC_API_KEY2 GITHUB_TOKEN_2 GITHUB_TOKEN_RO CALLBACK_URL_V2 SANDBOX_IO
TICKET_URL TICKET_KEY ANTHROPIC_MODEL ANTHROPIC_API_KEYS ANTHROPIC_BETAS ANTHROPIC_CUSTOM_HEADERS INIT_CWD
"""


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("ALOWED_TOOLS", "ALLOWED_TOOLS"), ("CALLBACK_URI", "CALLBACK_URL"), ("CALLBACKURL", "CALLBACK_URL"),
        ("INITAL_PRMPT", "INITIAL_PROMPT"), ("TICKET_TITEL", "TICKET_TITLE"), ("MAX_TURN", "MAX_TURNS"),
        ("SANDBOXID", "SANDBOX_ID"), ("ANTHROPIC_AUHT_TOKEN", "ANTHROPIC_AUTH_TOKEN"),
    ],
)  # fmt: skip
def test_a_slip_is_recognised(given: str, meant: str) -> None:
    assert slips([given, "PATH"], BY_VARIABLE) == [(given, meant)]
    assert slips([given, meant], BY_VARIABLE) == [(given, meant)]


def test_what_is_common_elsewhere_is_nobodys_slip() -> None:
    assert slips([*OF_OTHERS.split(), *BY_VARIABLE], BY_VARIABLE) == []
    assert slips(OF_OTHERS.split(), BY_VARIABLE) == []


def test_the_nearest_name_is_named_only_if_it_is_near() -> None:
    assert nearest("CONTINUOUS_MAX_COST", BY_VARIABLE) == "CONTINUOUS_MAX_COST_USD"
    assert nearest("SOMETHING_ELSE", BY_VARIABLE) is None
