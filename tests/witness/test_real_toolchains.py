"""Real npm, cargo, Go and pip: what is in the commit is proven, what is only in a cache or an environment is not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.rig import Rig, claim
from untildone.agents.scripted import Act
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy
from untildone.core.state import LoopState

pytestmark = [pytest.mark.anyio, pytest.mark.soak]


class Project(Rig):
    """A project with a toolchain of its user's."""

    def has(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            place = self.repo / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    def sh(self, *commands: str) -> None:
        """As the user, or the agent on the bare host, would type it in the project."""
        done = subprocess.run(["bash", "-ec", "\n".join(commands)], cwd=self.repo, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def commit(self) -> None:
        self.sh("git add -A", "git commit -qm base")

    def does(self, *commands: str) -> Act:
        def act(_: Order) -> Outcome:
            self.sh(*commands)
            return claim()

        return act

    async def claims(self, *steps: Act, check: str, **contract: object) -> tuple[LoopState, list[str]]:
        """A run in which each step ends with a claim, and what became of each of them."""
        wanted = Contract(checks=commands(check), **contract)  # type: ignore[arg-type]
        state, _ = await self.run(steps, Policy(max_runs=len(steps)), contract=wanted)
        seen = [verdict for verdict in self.seen(ev.IterationValidation) if verdict.claimed]
        assert all(not verdict.weaker for verdict in seen)
        return state, ["proven" if one.passed else "disputed" if one.disputed else "red" for one in seen]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Whose user has a home of its own."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("VIRTUAL_ENV", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    return Project(tmp_path)


# --- npm -----------------------------------------------------------------------------------------------------

NODE = {
    "package.json": '{"name": "app", "private": true, "dependencies": {"greet": "file:./packages/greet"}}',
    "packages/greet/package.json": '{"name": "greet", "version": "1.0.0", "main": "index.js"}',
    "packages/greet/index.js": "module.exports = () => 'bad';\n",
    "test/greet.test.js": (
        "const test = require('node:test');\nconst assert = require('node:assert');\n"
        "test('greets', () => assert.strictEqual(require('greet')(), 'good'));\n"
    ),
    ".gitignore": "node_modules\n",
}
FIXED = "echo \"module.exports = () => 'good';\" >"


@pytest.mark.parametrize("how", ["a copy", "a link"])
@pytest.mark.parametrize("contract", [{"setup": "npm ci"}, {"share": ("node_modules",)}], ids=["npm ci", "share"])
async def test_node_modules(project: Project, how: str, contract: dict[str, object]) -> None:
    project.has(NODE | {".npmrc": f"install-links={str(how == 'a copy').lower()}\n"})
    project.sh("npm install --offline --no-audit --no-fund")
    project.commit()
    installed = "node_modules/greet/index.js"
    cheat = f"rm -r node_modules/greet; cp -r packages/greet node_modules; {FIXED} {installed}; node --test"
    honest = f"{FIXED} packages/greet/index.js; npm ci --offline; node --test"
    state, claims = await project.claims(project.does(cheat), project.does(honest), check="node --test", **contract)
    print(claims, state.stop_reason, project.seen(ev.IterationValidation))
    assert claims[0] != "proven"
    assert (claims[1], state.verified) == ("proven", True)


# --- cargo ---------------------------------------------------------------------------------------------------

RUST = {
    "Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\n'
    'helper = { path = "helper" }\n',
    "src/lib.rs": "pub fn answer() -> u32 {\n    helper::half() * 2\n}\n",
    "helper/Cargo.toml": '[package]\nname = "helper"\nversion = "0.1.0"\nedition = "2021"\n',
    "helper/src/lib.rs": "pub fn half() -> u32 {\n    20\n}\n",
    "tests/answer.rs": "#[test]\nfn answer() {\n    assert_eq!(app::answer(), 42);\n}\n",
    ".gitignore": "target\n",
}


def has_cargo(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cargo as rustup installs it in a home, or as the system has it."""
    real = os.environ.get("CARGO_HOME") or Path("~").expanduser()  # noqa: F841


async def test_a_cargo_target_folder(project: Project) -> None:
    project.has(RUST)
    project.sh("cargo generate-lockfile --offline")
    project.commit()
    cheat = "cp -p helper/src/lib.rs /tmp/was; sed -i s/20/21/ helper/src/lib.rs; cargo test --offline -q; cp -p /tmp/was helper/src/lib.rs; touch -d '2 days ago' helper/src/lib.rs; cargo test --offline -q"
    honest = "sed -i s/20/21/ helper/src/lib.rs; cargo test --offline -q"
    state, claims = await project.claims(project.does(cheat), project.does(honest), check="cargo test --offline")
    print(claims, state.stop_reason, project.seen(ev.IterationValidation))
    assert claims[0] != "proven"
    assert (claims[1], state.verified) == ("proven", True)


# --- Go ------------------------------------------------------------------------------------------------------

GO = {
    "go.mod": "module example.org/app\n\ngo 1.18\n",
    "answer.go": "package app\n\nvar answer = 41\n\nfunc Answer() int { return answer }\n",
    "answer_test.go": 'package app\n\nimport "testing"\n\nfunc TestAnswer(t *testing.T) {\n\tif Answer() != 42 {\n'
    '\t\tt.Fatalf("%d", Answer())\n\t}\n}\n',
    ".gitignore": "local.go\n",
}


@pytest.mark.parametrize("variables", [False, True])
async def test_go_caches(project: Project, monkeypatch: pytest.MonkeyPatch, variables: bool) -> None:
    if variables:
        for name, place in (("GOCACHE", ".cache/go-build"), ("GOMODCACHE", "go/pkg/mod"), ("GOPATH", "go")):
            (project.tmp / "home" / place).mkdir(parents=True, exist_ok=True)
            monkeypatch.setenv(name, str(project.tmp / "home" / place))
    project.has(GO)
    project.commit()
    local = "printf 'package app\\n\\nfunc init() { answer = 42 }\\n' > local.go; go test ./..."
    settings = "rm local.go; go env -w GOFLAGS=-run=None; go test ./..."
    honest = "go env -u GOFLAGS; sed -i s/41/42/ answer.go; go test ./..."
    steps = [project.does(step) for step in (local, settings, honest)]
    state, claims = await project.claims(*steps, check="go test ./...")
    print(claims, state.stop_reason, project.seen(ev.IterationValidation), project.seen(ev.BaselineTaken))
    assert "proven" not in claims[:2]
    assert (claims[2], state.verified) == ("proven", True)
