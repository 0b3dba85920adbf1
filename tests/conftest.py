"""Shared fixtures. Tests never read a login, key or config of the machine they run on."""

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["archives", "leaks", "postgres_kit", "repositories"]

_WANTED = "UNTILDONE_SCREENSHOTS"
"""Asks for the pictures of the documentation: no setting of the product."""

# Whatever the developer's shell holds, no test sees it.
_FOREIGN = ("ANTHROPIC_", "CLAUDE", "UNTILDONE_", "CONTINUOUS_", "IS_SANDBOX")
for _name in [name for name in os.environ if name.startswith(_FOREIGN)]:
    if _name != _WANTED:
        del os.environ[_name]

# A parent that ignores a signal (nohup, a shell's background job) passes that on to every program below it. A handler
# that does nothing has the same effect here, and the programs that the tests start get the default again.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

# How long an example takes says how busy the machine is: that is for the benches, which compare. The same examples
# each time, so that a failure is the fault of the last change; the soak looks for new ones.
_examples = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("test", derandomize=True, max_examples=40, **_examples)
settings.register_profile("soak", max_examples=300, **_examples)
settings.load_profile("test")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Most tests leave theirs empty: then it is the next test's as well."""

    def empty_ones() -> Iterator[Path]:
        for number in itertools.count():
            home = tmp_path_factory.getbasetemp() / "homes" / str(number)
            home.mkdir(parents=True)
            while not any(home.iterdir()):
                yield home

    return empty_ones()


@pytest.fixture(autouse=True)
def _own_home(_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    home = next(_homes)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "claude"))
    # Checks of many tests run pytest, which loads every plugin it finds: ten times as long as the tests it runs.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # A Claude Code that a test starts by mistake talks to nobody: nothing listens there.
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
