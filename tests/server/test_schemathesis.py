"""The description of the API is complete and true, and no input makes the server fail."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from server.door_kit import Served, served
from server.sending_kit import send

_CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
_ENDLESS = r"/stream$"
METHODS = ("get", "put", "post", "delete", "patch")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("server")) as one:
        send(one, "run", range(1, 20))
        yield one


@pytest.fixture(scope="module")
def operator(server: Served) -> str:
    return server.token("operator")[1]


@pytest.mark.parametrize(
    ("mode", "examples"),
    [
        pytest.param(GenerationMode.NEGATIVE, 100, marks=pytest.mark.soak),
        pytest.param(GenerationMode.POSITIVE, 100, marks=pytest.mark.soak),
    ],
)
def test_no_input_makes_it_fail_and_every_answer_is_as_described(
    server: Served, operator: str, mode: GenerationMode, examples: int
) -> None:
    load_all_checks()
    checks = CHECKS.get_by_names(_CHECKED)
    headers = {"Authorization": f"Bearer {operator}"}
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/api/openapi.json", headers=headers)
    tried = 0
    for found in schema.exclude(path_regex=_ENDLESS).get_all_operations():
        operation = found.ok()

        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def answers_as_described(case: Any) -> None:
            # How long a worker waits is tested elsewhere.
            if case.query and "wait" in case.query:
                case.query["wait"] = 0
            case.call_and_validate(checks=checks, headers=headers, timeout=240)

        try:
            answers_as_described()
        except Unsatisfiable:
            # Nothing can be wrong with a request that takes nothing.
            assert mode is GenerationMode.NEGATIVE, operation.label
        tried += 1
    assert tried >= 20


def test_everything_says_what_it_needs_and_how_it_refuses(server: Served) -> None:
    described = json.loads(server.ask("GET", "/api/openapi.json").body)
    paths = described["paths"]
    assert {"/healthz", "/readyz", "/metrics"} < set(paths)
    for path, operations in paths.items():
        for method in METHODS:
            operation = operations.get(method)
            if operation is None or path in ("/healthz", "/readyz"):
                continue
            assert {"401", "403"} <= set(operation["responses"]), (method, path)
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":
                    schema = parameter["schema"]
                    assert "pattern" in schema or "maximum" in schema, (path, parameter["name"])
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    [content] = response["content"].values()
                    assert content["schema"]["$ref"].endswith("Problem"), (path, status)


def test_there_are_no_pages_that_load_scripts_from_elsewhere(server: Served) -> None:
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert server.ask("GET", path).status == 404
