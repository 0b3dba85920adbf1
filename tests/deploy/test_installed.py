"""The product as `pip install untildone` leaves it: without what only developers have."""

import os
import re
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WITHOUT_THE_REST = """
import sys
from importlib import metadata
kept = set(sys.argv[1].split(","))
names = {
    module: {"-".join(name.lower().replace("_", "-").split(".")) for name in found}
    for module, found in metadata.packages_distributions().items()
}

class Missing:
    def find_spec(self, name, path=None, target=None):
        found = names.get(name.partition(".")[0])
        if found and not found & kept:
            raise ModuleNotFoundError(f"{name} is not a dependency", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = ["untildone", *sys.argv[2:]]
from untildone.__main__ import main
sys.exit(main())
"""


def closure(requirements: list[str]) -> set[str]:
    """The names of all distributions that come along with these."""
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        wanted, for_extra = waiting.pop()
        if wanted.marker and not wanted.marker.evaluate({"extra": for_extra}):
            continue
        name = canonicalize_name(wanted.name)
        for extra in ("", *sorted(wanted.extras)):
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += [(Requirement(text), extra) for text in metadata.requires(name) or []]
    return {name for name, _ in seen}


@pytest.fixture(scope="module")
def installed() -> set[str]:
    names = closure([*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["postgres"]])
    assert {"sqlalchemy", "asyncpg", "uvicorn"} <= names
    assert not {"pytest", "playwright", "ruff"} & names
    return {*names, "untildone"}


@pytest.fixture
def server(installed: set[str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    words = ["serve", "--port", "0", "--no-local", "--database", f"sqlite:///{tmp_path}/server.db"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "UNTILDONE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(
        [sys.executable, "-c", WITHOUT_THE_REST, ",".join(sorted(installed)), *words],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def test_the_server_needs_nothing_that_is_not_installed_with_it(server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    said = server.stdout.readline()
    address = re.fullmatch(r"untildone serves at (http://\S+)\n", said)
    assert address, said
    with urllib.request.urlopen(f"{address[1]}/readyz", timeout=240) as answer:
        assert answer.status == 200
    server.send_signal(signal.SIGTERM)
    assert server.wait(120) == 0
