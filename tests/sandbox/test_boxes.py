"""The sandbox of an agent as it is put together: what is lent is settled before an agent can have a say."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from untildone.boxes import Box, Lodger, box_for
from untildone.core.policy import AgentOptions, RunSpec
from untildone.errors import AgentError, NoSandbox
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
    Path(lodger.spec.cwd, ".git").rmdir()  # as only something outside can
    Path(lodger.spec.cwd, ".git").write_text(f"gitdir: {lodger.env['HOME']}/.ssh\n")
    with pytest.raises(AgentError, match="is no folder of its own"):
        box.spawner.words(lodger.spec.cwd)
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


# --- what an agent leaves for the next start -------------------------------------------------------------


def inside(box: Box, lodger: Lodger, script: str) -> str:
    """What a program in the sandbox prints."""
    argv = [*box.spawner.words(lodger.spec.cwd), "sh", "-c", script]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=dict(lodger.env)).stdout


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that is not lent."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("CANARY")
    return folder


def test_a_link_in_the_place_of_its_memory_leads_nowhere(lodger: Lodger, outside: Path) -> None:
    box, config = box_for(lodger, HostSpawner()), lodger.config_dir
    inside(box, lodger, f"rm -rf {config}/memory {config}/projects/*/memory; ln -s / {config}/memory")
    told = inside(
        box, lodger, f"for m in {config}/memory {config}/projects/*/memory; do cat $m{outside}/secret; "
        f"echo x > $m{outside}/written; done",
    )  # fmt: skip
    assert "CANARY" not in told
    assert [file.name for file in outside.iterdir()] == ["secret"]


def test_what_the_agent_makes_of_its_folder_lends_it_nothing_more(lodger: Lodger, outside: Path) -> None:
    before = words(lodger)
    script = (
        "mkdir -p .cargo/bin .cargo/lib/python3.9; ln -sfn {out} .rustup; ln -s {out} .venv; "
        "touch .cargo/bin/python .cargo/pyvenv.cfg .cargo/lib/python3.9/os.py"
    )
    inside(box_for(lodger, HostSpawner()), lodger, script.format(out=outside))
    assert words(lodger) == before, "a later driver of the run"
    with_path = replace(lodger, env={**lodger.env, "PATH": f"{lodger.spec.cwd}/.venv/bin:{lodger.env['PATH']}"})
    (outside / "bin").mkdir()
    for one in (with_path, replace(with_path, name="another"), replace(with_path, is_reader=True)):
        assert str(outside) not in words(one)


def test_a_file_in_the_folder_that_became_a_link_is_not_lent(lodger: Lodger, outside: Path) -> None:
    servers = Path(lodger.spec.cwd, "conf", "mcp.json")
    servers.parent.mkdir()
    servers.write_text("{}")
    options = replace(lodger.spec.options, mcp_config=(str(servers),))
    given = replace(lodger, spec=replace(lodger.spec, options=options))
    box = box_for(given, HostSpawner())
    inside(box, given, f"echo > {servers}; mv conf conf2; mkdir conf; ln -s {outside}/secret conf/mcp.json")
    assert servers.read_text() == "{}", "it is held fast"
    servers.unlink()  # as an earlier run could have left it
    servers.symlink_to(outside / "secret")
    assert "CANARY" not in inside(box_for(given, HostSpawner()), given, f"cat {servers}")


def test_nothing_on_the_way_to_a_mount_can_be_replaced(lodger: Lodger, outside: Path) -> None:
    tools = Path(lodger.env["HOME"], "tools", "deep", "bin")
    tools.mkdir(parents=True)
    given = replace(lodger, env={**lodger.env, "PATH": f"{tools}:{lodger.env['PATH']}"})
    box = box_for(given, HostSpawner())
    script = "cd {0} && mv {1} moved && ln -s /oldroot{2} {1}; rm -rf {1}; ln -s /oldroot{2} {1}"
    inside(box, given, script.format(given.config_dir, "projects", outside))
    inside(box, given, script.format(given.env["HOME"], "tools", outside))
    assert inside(box, given, "echo there") == "there\n"
    assert [file.name for file in outside.iterdir()] == ["secret"]
    for name in ("claude/projects", "home/tools"):
        assert (box.around / name).is_dir()
        assert not (box.around / name).is_symlink()


def test_what_is_in_the_way_of_a_new_mount_is_put_aside(lodger: Lodger, outside: Path) -> None:
    inside(box_for(lodger, HostSpawner()), lodger, f"cd; ln -s /oldroot{outside} tools; echo x > .nvm")
    for name in ("tools/deep/bin", ".nvm/v20/bin"):
        Path(lodger.env["HOME"], name).mkdir(parents=True)
    path = ":".join(f"{lodger.env['HOME']}/{name}" for name in ("tools/deep/bin", ".nvm/v20/bin"))
    given = replace(lodger, env={**lodger.env, "PATH": f"{path}:{lodger.env['PATH']}"})
    assert (
        inside(box_for(given, HostSpawner()), given, "cd; ls tools/deep .nvm/v20")
        == ".nvm/v20:\nbin\n\ntools/deep:\nbin\n"
    )
    assert [file.name for file in outside.iterdir()] == ["secret"]


@pytest.mark.parametrize("what", ["mkdir -p {0}/x; chmod 0 {0}", "ln -s /etc/passwd {0}", "mkfifo {0}"])
@pytest.mark.parametrize("file", ["{config}/settings.json", "{home}/.claude.json"])
def test_settings_are_files_again_at_the_next_start(lodger: Lodger, file: str, what: str) -> None:
    box, home = box_for(lodger, HostSpawner()), lodger.env["HOME"]
    place = file.format(config=lodger.config_dir, home=home)
    inside(box, lodger, f"rm -rf {place}; {what.format(place)}")
    for one in (box, box_for(lodger, HostSpawner())):
        assert inside(one, lodger, f"[ ! -L {place} ] && [ -f {place} ] && head -c 1 {place}") == "{"


def test_a_link_of_the_users_that_leads_through_the_folder_lends_nothing(lodger: Lodger) -> None:
    Path(lodger.spec.cwd, "skills").mkdir()
    lodger.config_dir.mkdir()
    for name in ("skills", "CLAUDE.md"):
        (lodger.config_dir / name).symlink_to(Path(lodger.spec.cwd, name))
    Path(lodger.spec.cwd, "CLAUDE.md").touch()
    assert not {str(lodger.config_dir / name) for name in ("skills", "CLAUDE.md")} & {*words(lodger)}
    shared = Path(lodger.env["HOME"], "shared")
    shared.mkdir()
    (shared / ".git").symlink_to(lodger.env["HOME"])
    options = replace(lodger.spec.options, add_dirs=(str(shared),))
    with pytest.raises(NoSandbox, match="can replace"):
        words(replace(lodger, spec=replace(lodger.spec, options=options)))
