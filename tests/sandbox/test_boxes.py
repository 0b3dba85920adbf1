"""The sandbox of an agent as it is put together: what is lent is settled before an agent can have a say."""

import os
import subprocess
from pathlib import Path

import pytest

from untildone.boxes import Lodger, box_for
from untildone.core.policy import AgentOptions, RunSpec
from untildone.errors import NoSandbox
from untildone.sandbox.host import HostSpawner


@pytest.fixture
def lodger(tmp_path: Path) -> Lodger:
    home = tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    (home / ".ssh").mkdir()
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "the-key"}
    return Lodger(
        spec=RunSpec(goal="g", cwd=str(project), name="n", options=AgentOptions(sandbox="bwrap")),
        env=env,
        config_dir=home / ".claude",
        claude="/usr/bin/true",
        state_dir=tmp_path / "state",
        run_id="run",
        name="run-work",
        own=(tmp_path / "state",),
    )


def words(lodger: Lodger) -> tuple[str, ...]:
    return box_for(lodger, HostSpawner()).spawner.words(lodger.spec.cwd)


def test_a_git_file_that_the_agent_makes_leads_nowhere(lodger: Lodger) -> None:
    box = box_for(lodger, HostSpawner())
    before = box.spawner.words(lodger.spec.cwd)
    Path(lodger.spec.cwd, ".git").write_text(f"gitdir: {lodger.env['HOME']}/.ssh\n")
    assert box.spawner.words(lodger.spec.cwd) == before
    assert f"{lodger.env['HOME']}/.ssh" not in before


def test_nothing_is_written_through_a_link_that_the_agent_left(lodger: Lodger) -> None:
    box, mine = box_for(lodger, HostSpawner()), Path(lodger.env["HOME"], ".bashrc")
    mine.write_text("mine")
    box.spawner.words(lodger.spec.cwd)
    settings = box.around / "claude" / "settings.json"
    settings.unlink()
    settings.symlink_to(mine)
    box.spawner.words(lodger.spec.cwd)
    assert mine.read_text() == "mine"
    assert not settings.is_symlink()


def test_a_file_that_a_variable_names_is_not_lent(lodger: Lodger) -> None:
    secret = Path(lodger.env["HOME"], "keys", "account.json")
    secret.parent.mkdir()
    secret.touch()
    tools = Path(lodger.env["HOME"], "tools")
    tools.mkdir()
    given = {**lodger.env, "GOOGLE_APPLICATION_CREDENTIALS": str(secret), "TOOLS": str(tools)}
    seen = words(Lodger(**{name: getattr(lodger, name) for name in Lodger.__slots__} | {"env": given}))
    assert str(tools) in seen
    assert str(secret) not in seen


def test_without_a_key_and_a_login_there_is_no_sandbox(lodger: Lodger) -> None:
    env = {name: value for name, value in lodger.env.items() if name != "ANTHROPIC_API_KEY"}
    with pytest.raises(NoSandbox, match="there is no key and no login"):
        words(Lodger(**{name: getattr(lodger, name) for name in Lodger.__slots__} | {"env": env}))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_root_does_not_work_in_the_folder_of_somebody_else(lodger: Lodger) -> None:
    os.chown(lodger.spec.cwd, 65534, 65534)
    with pytest.raises(NoSandbox, match="belongs to user 65534"):
        words(lodger)


def test_what_git_is_told_is_not_written_again_where_the_agent_has_been(lodger: Lodger) -> None:
    box_for(lodger, HostSpawner()).spawner.words(lodger.spec.cwd)
    home, target = lodger.around / "home", lodger.state_dir / "elsewhere"
    (home / ".gitconfig").unlink()
    (home / ".gitconfig").symlink_to(target)
    words(lodger)
    assert not target.exists()


def test_a_repository_that_the_agent_makes_in_a_plain_folder_stays_inside(lodger: Lodger) -> None:
    box = box_for(lodger, HostSpawner())
    script = "git init -q . && git config core.fsmonitor /x && git rev-parse --git-dir"
    done = subprocess.run(
        [*box.spawner.words(lodger.spec.cwd), "sh", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == ".git\n"
    box.leave()
    assert not Path(lodger.spec.cwd, ".git").exists()


def test_a_link_in_the_place_of_git_is_refused(lodger: Lodger) -> None:
    Path(lodger.spec.cwd, ".git").symlink_to(lodger.env["HOME"])
    with pytest.raises(NoSandbox, match="is a link"):
        box_for(lodger, HostSpawner())
