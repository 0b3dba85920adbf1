"""Real npm, cargo, Go and pip: what is in the commit is proven, what is only in a cache or an environment is not."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine.rig import Rig, claim
from untildone.agents.scripted import Act
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy
from witness.stage import Stage

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
        argv = ["bash", "-ec", "\n".join(commands)]
        done = subprocess.run(argv, cwd=self.repo, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def commit(self) -> None:
        self.sh("git add -A", "git commit -qm base")

    def does(self, *commands: str) -> Act:
        def act(_: Order) -> Outcome:
            self.sh(*commands)
            return claim()

        return act

    async def claims(self, *steps: Act, check: str, **contract: object) -> list[str]:
        """What becomes of the claim after each step; the last one ends the run, if it is believed."""
        wanted = Contract(checks=commands(check), **contract)  # type: ignore[arg-type]
        state, _ = await self.run(steps, Policy(max_runs=len(steps)), contract=wanted)
        seen = [verdict for verdict in self.seen(ev.IterationValidation) if verdict.claimed]
        told = ["proven" if one.passed else "disputed" if one.disputed else "red" for one in seen]
        assert state.verified == ("proven" in told), state.stop_detail
        assert [verdict.weaker for verdict in seen] == [""] * len(seen)
        return told


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Whose user has a home of its own."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "CARGO_HOME", "RUSTUP_HOME", "GOFLAGS"):
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
GREETS = "echo \"module.exports = () => 'good';\" >"


@pytest.mark.parametrize(
    ("contract", "first"),
    [({"setup": "npm ci"}, "red"), ({"share": ("node_modules",)}, "disputed")],
    ids=["npm ci", "share"],
)
async def test_work_that_is_only_in_node_modules(project: Project, contract: dict[str, object], first: str) -> None:
    project.has(NODE)
    project.sh("npm install --offline --no-audit --no-fund")
    project.commit()
    installed = "node_modules/greet"
    cheat = f"rm -r {installed}; cp -r packages/greet {installed}; {GREETS} {installed}/index.js; node --test"
    honest = f"npm ci --offline; {GREETS} packages/greet/index.js; node --test"
    steps = project.does(cheat), project.does(honest)
    assert await project.claims(*steps, check="node --test", **contract) == [first, "proven"]


# --- cargo ---------------------------------------------------------------------------------------------------

RUST = {
    "Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2018"\n\n[dependencies]\n'
    'helper = { path = "helper" }\n',
    "src/lib.rs": "pub fn answer() -> u32 {\n    helper::half() * 2\n}\n",
    "helper/Cargo.toml": '[package]\nname = "helper"\nversion = "0.1.0"\nedition = "2018"\n',
    "helper/src/lib.rs": "pub fn half() -> u32 {\n    20\n}\n",
    "tests/answer.rs": "#[test]\nfn answer() {\n    assert_eq!(app::answer(), 42);\n}\n",
    ".gitignore": "target\n",
}
CARGO = "cargo test --offline"


def has_cargo(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rustup has installed it in a home, this home has it in the same way."""
    real = Path(shutil.which("cargo") or "").parent
    if (real.parent.parent / ".rustup").is_dir():
        (home / ".cargo" / "bin").mkdir(parents=True)
        (home / ".rustup").symlink_to(real.parent.parent / ".rustup")
        for name in ("cargo", "rustc", "rustdoc"):
            (home / ".cargo" / "bin" / name).symlink_to(real / name)
        monkeypatch.setenv("PATH", f"{home}/.cargo/bin:/usr/bin:/bin")


async def test_work_that_is_only_in_the_target_folder_or_in_the_settings_of_cargo(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_cargo(project.tmp / "home", monkeypatch)
    project.has(RUST)
    project.sh("cargo generate-lockfile --offline")
    project.commit()
    source = "helper/src/lib.rs"
    # Cargo tells by the times of files whether to build anew.
    built = f"cp -p {source} ../was; sed -i s/20/21/ {source}; {CARGO}; cp -p ../was {source}; {CARGO}"
    settings = f"""mkdir -p ~/.cargo; printf '[target."cfg(all())"]\\nrunner = "true"\\n' > ~/.cargo/config.toml
        touch {source}; {CARGO}"""
    honest = f"rm ~/.cargo/config.toml; sed -i s/20/21/ {source}; {CARGO}"
    steps = [project.does(step) for step in (built, settings, honest)]
    assert await project.claims(*steps, check=CARGO) == ["red", "disputed", "proven"]


# --- Go ------------------------------------------------------------------------------------------------------

GO = {
    "go.mod": "module example.org/app\n\ngo 1.18\n",
    "answer.go": "package app\n\nvar answer = 41\n\nfunc Answer() int { return answer }\n",
    "answer_test.go": 'package app\n\nimport "testing"\n\nfunc TestAnswer(t *testing.T) {\n\tif Answer() != 42 {\n'
    '\t\tt.Fatalf("%d", Answer())\n\t}\n}\n',
    ".gitignore": "local.go\n",
}


async def test_a_target_folder_that_a_variable_names(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    has_cargo(project.tmp / "home", monkeypatch)
    monkeypatch.setenv("CARGO_TARGET_DIR", f"{project.tmp}/home/target")
    project.has(RUST)
    project.sh("cargo generate-lockfile --offline", "mkdir ~/target")
    project.commit()
    honest = project.does(f"sed -i s/20/21/ helper/src/lib.rs; {CARGO}")
    assert await project.claims(honest, check=CARGO) == ["proven"]


@pytest.mark.parametrize("named", [False, True], ids=["its own places", "named by variables"])
async def test_work_that_is_in_no_commit_or_in_the_settings_of_go(
    project: Project, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    home = project.tmp / "home"
    for name, place in (("GOCACHE", ".cache/go-build"), ("GOMODCACHE", "go/pkg/mod"), ("GOPATH", "go")):
        if named:
            (home / place).mkdir(parents=True, exist_ok=True)
            monkeypatch.setenv(name, str(home / place))
    project.has(GO)
    project.commit()
    local = "printf 'package app\\n\\nfunc init() { answer = 42 }\\n' > local.go; go test ./..."
    settings = "rm local.go; go env -w GOFLAGS=-run=None; go test ./..."
    honest = "go env -u GOFLAGS; sed -i s/41/42/ answer.go; go test ./..."
    steps = [project.does(step) for step in (local, settings, honest)]
    assert await project.claims(*steps, check="go test ./...") == ["red", "red", "proven"]


async def test_work_that_is_only_in_the_store_of_go(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module from a proxy that is a folder, as `go mod download` puts it into the store."""
    proxy = project.tmp / "proxy" / "example.org" / "dep" / "@v"
    proxy.mkdir(parents=True)
    (proxy / "v1.0.0.mod").write_text("module example.org/dep\n\ngo 1.18\n")
    (proxy / "v1.0.0.info").write_text('{"Version": "v1.0.0"}')
    with zipfile.ZipFile(proxy / "v1.0.0.zip", "w") as packed:
        packed.writestr("example.org/dep@v1.0.0/go.mod", "module example.org/dep\n\ngo 1.18\n")
        packed.writestr("example.org/dep@v1.0.0/dep.go", "package dep\n\nconst Answer = 41\n")
    for name, value in {"GOPROXY": f"file://{project.tmp}/proxy", "GONOSUMDB": "*", "GOFLAGS": "-mod=mod"}.items():
        monkeypatch.setenv(name, value)
    (project.tmp / "home" / "go" / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{project.tmp}/home/go/bin:{os.environ['PATH']}")
    uses = {"answer.go": 'package app\n\nimport "example.org/dep"\n\nfunc Answer() int { return dep.Answer }\n'}
    project.has(GO | uses)
    project.sh("go get example.org/dep@v1.0.0")
    project.commit()
    stored = "~/go/pkg/mod/example.org/dep@v1.0.0"
    cheat = f"chmod -R u+w {stored}; sed -i s/41/42/ {stored}/dep.go; go test -count=1 ./..."
    try:
        assert await project.claims(project.does(cheat), check="go test ./...") == ["disputed"]
    finally:
        project.sh("chmod -R u+w ~/go")  # Go keeps its store read-only, and pytest is to remove it


# --- pip -----------------------------------------------------------------------------------------------------

BACKENDS = {
    "setuptools": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n\n'
    '[project]\nname = "pkg"\nversion = "1"\n',
    "hatchling": '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n\n'
    '[project]\nname = "pkg"\nversion = "1"\n',
}
SEES = "python -c 'import pkg; print(pkg.__file__, pkg.VALUE, flush=True); assert pkg.VALUE == 2'"


@pytest.fixture(scope="module")
def builders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip builds packages with, as it is published."""
    place = tmp_path_factory.mktemp("builders")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--target", str(place)]
    subprocess.run([*pip, "setuptools>=77", "hatchling", "editables"], check=True, capture_output=True)
    return place


@pytest.mark.parametrize("venv", ["home/.virtualenvs/pkg", "repo/.venv"])
@pytest.mark.parametrize("layout", ["src/pkg", "pkg"])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_package_that_pip_installed_in_place_is_the_commits_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, builders: Path, *, backend: str, layout: str, venv: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    stage, place = Stage(tmp_path), tmp_path / venv
    (stage.repo / ".gitignore").write_text(".venv\n*.egg-info\nbuild\n__pycache__\n")
    package = stage.repo / layout / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text("VALUE = 1\n")
    (stage.repo / "pyproject.toml").write_text(BACKENDS[backend])
    stage.commit()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    env = os.environ | {"PYTHONPATH": str(builders)}
    pip = [sys.executable, "-m", "pip", "--python", f"{place}/bin/python", "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "-e", str(stage.repo)], env=env, check=True, capture_output=True)
    if backend == "hatchling":  # the links of this kind are made when Python starts
        (packages,) = place.glob("lib/python*/site-packages")
        shutil.copytree(builders / "editables", packages / "editables")
    monkeypatch.setenv("VIRTUAL_ENV", str(place))
    monkeypatch.setenv("PATH", f"{place}/bin:{os.environ['PATH']}")
    package.write_text("VALUE = 2  # not committed\n")
    (result,) = await stage.examine(SEES)
    assert (result.passed, result.weaker) == (False, "")
    assert result.output_tail.startswith(f"{package} 1\n")
    stage.commit()
    (result,) = await stage.examine(SEES)
    assert (result.passed, result.output_tail) == (True, f"{package} 2\n")
