"""An agent in a sandbox has a repository of its own: it works like the user's, and nothing in it runs outside."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from git.agents_kit import Boxed, boxed
from git.conftest import Project
from repositories import add_remote, new_bare_repository
from untildone.errors import WorkspaceError
from untildone.git.agents_repository import without_login

pytestmark = pytest.mark.anyio

COMMIT = "git -c user.name=agent -c user.email=agent@x commit -q"


async def prepared(project: Project, state: Path, **changes: Any) -> Boxed:
    found = await boxed(project, state, **changes)
    await found.workspace.prepare()
    return found


async def settled(one: Boxed, number: int, script: str) -> Any:
    """An iteration in which the agent does this."""
    before = await one.workspace.observe()
    one.agent(script)
    return await one.workspace.settle(before, iteration_num=number, message=f"Iteration {number}")


def as_the_user(project: Project) -> str:
    """What a user may well do afterwards, outside; whatever git says to it."""
    said = ""
    for words in (
        "status", "diff", "log -1", "branch -a", "stash list", "rebase --continue", "fetch --all", "add -A",
        "commit --allow-empty -qm mine", "gc --auto", "submodule status", "worktree list", "fsck", "checkout -q -",
    ):  # fmt: skip
        asked = ["git", *words.split()]
        done = subprocess.run(asked, cwd=project.path, capture_output=True, text=True, check=False, timeout=240)
        said += done.stdout + done.stderr
    return said


async def test_inside_git_answers_as_outside(repo: Project, tmp_path: Path) -> None:
    bare = new_bare_repository(tmp_path / "bare.git", {"README.md": "hello\n"})
    add_remote(repo.path, bare)
    repo.git("tag", "-am", "one", "v1")
    repo.git("config", "remote.origin.pushurl", "https://ada:secret@example.org/x")
    repo.git("config", "http.https://example.org/.extraheader", "AUTHORIZATION: secret")
    one = await prepared(repo, tmp_path)
    asked = (
        "git log --format=%H%d --all -- . ; git status -sb; git describe; git remote; git rev-parse origin/main; "
        "git blame README.md; git stash list; git diff --stat"
    )
    outside = subprocess.run(["sh", "-c", asked], cwd=repo.path, capture_output=True, text=True, check=True).stdout
    left_out = "refs/untildone/r1/start"
    assert one.agent(asked) == outside.replace(f", {left_out}", "").replace(left_out, "").strip()
    assert "secret" not in one.agent("cat .git/config; git config --list")


async def test_what_the_agent_commits_is_in_the_repository_of_the_user(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    result = await settled(one, 1, f"echo new > new.txt; git add -A; {COMMIT} -m 'by the agent'; echo more > more.txt")
    assert (result.by, result.tree.dirty) == ("agent", ())
    assert repo.git("log", "-3", "--format=%s") == "Iteration 1\nby the agent\nfirst"
    assert repo.git("symbolic-ref", "--short", "HEAD") == "work"
    assert repo.git("status", "--porcelain") == ""
    assert repo.git("rev-parse", "HEAD") == one.agent("git rev-parse HEAD") == result.tree.head


async def test_many_objects_and_rewritten_history_come_out_too(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    many = f"mkdir d; for n in $(seq 200); do echo $n > d/$n; done; git add -A; {COMMIT} -m many"
    first = await settled(one, 1, many)
    second = await settled(
        one, 2, f"git rm -q -r d; echo x > x; git add x; {COMMIT} --amend -m 'fewer'; git gc -q --prune=now"
    )
    assert repo.git("log", "-2", "--format=%s") == "fewer\nfirst"
    assert "is on no branch any more" in second.warning
    assert repo.git("rev-parse", "refs/untildone/r1/1") == first.commit
    assert "missing" not in repo.git("fsck")


async def test_hooks_of_the_repository_run_inside_when_the_loop_commits(repo: Project, tmp_path: Path) -> None:
    repo.hook("pre-commit", f'env > "$HOME/seen"; touch {tmp_path}/outside; echo x > hooked.txt; git add hooked.txt')
    one = await prepared(repo, tmp_path)
    await settled(one, 1, "git config core.hooksPath /nowhere; echo new > new.txt")
    assert repo.git("show", "--name-only", "--format=") == "hooked.txt\nnew.txt"
    assert "HOME=/untildone-home" in (tmp_path / "box/home/seen").read_text()
    assert not (tmp_path / "outside").exists()


async def test_an_uncommitted_tree_is_saved_with_what_is_in_it(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path, commit=False)
    result = await settled(one, 1, "mkdir d; echo deep > d/deep.txt; ln -s /etc/passwd link")
    assert repo.git("show", f"{result.snapshot}:d/deep.txt") == "deep"
    assert repo.git("rev-parse", "HEAD") == result.tree.head
    assert [*(tmp_path / "box/git").glob("untildone-*")] == []


HOSTILE = {
    "settings": "git config core.fsmonitor '{run}'; git config core.sshCommand '{run}'; "
    "git config alias.status '!{run}'",
    "settings by rename": "printf '[core]\\n\\tfsmonitor = {run}\\n' > c; cp -r .git x; mv c .git/config; rm -rf x",
    "settings of the worktree": "git config extensions.worktreeConfig true; "
    "git config --worktree core.fsmonitor '{run}'",
    "another common folder": "mkdir evil; git init -q --bare evil/.g; printf '[core]\\n\\tfsmonitor = {run}\\n' >> "
    "evil/.g/config; echo ../evil/.g > .git/commondir || true",
    "hooks": "mkdir -p .git/hooks; for h in post-checkout pre-commit post-index-change reference-transaction; do "
    "printf '#!/bin/sh\\n{run}\\n' > .git/hooks/$h && chmod +x .git/hooks/$h; done || true",
    "a rebase with commands": "mkdir -p .git/rebase-merge; cd .git/rebase-merge; echo 'exec {run}' > git-rebase-todo; "
    "echo refs/heads/work > head-name; git rev-parse HEAD > onto; cp onto orig-head; touch interactive",
    "a filter": "git config filter.x.clean '{run}'; git config filter.x.smudge '{run}'; "
    "echo '* filter=x' > .gitattributes",
    "a repository with a file monitor": "git init -q sub; git -C sub config core.fsmonitor '{run}'; echo x > sub/x",
    "alternates": "echo /etc > .git/objects/info/alternates",
    "replaced objects": "{commit} --allow-empty -m r; git replace HEAD HEAD~1",
    "links in place of everything": "cd .git; for f in index packed-refs logs refs; do rm -rf $f; "
    "ln -s /etc/passwd $f; done",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_nothing_that_the_agent_writes_into_git_runs_outside(name: str, repo: Project, tmp_path: Path) -> None:
    repo.hook("post-commit", "true")
    bare = new_bare_repository(tmp_path / "bare.git", {"README.md": "hello\n"})
    add_remote(repo.path, bare)
    before = (repo.path / ".git/config").read_bytes()
    one = await prepared(repo, tmp_path)
    script = tmp_path / "run.sh"
    # Outside it leaves a mark; inside its folder is not there.
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    script.chmod(0o755)
    start = await one.workspace.observe()
    one.agent(HOSTILE[name].format(run=script, commit=COMMIT), check=False)
    try:
        await one.workspace.observe()
        await one.workspace.settle(start, iteration_num=1, message="Iteration 1")
        await one.workspace.leave()
    except WorkspaceError:
        pass  # it has broken its own repository: that is told, and nothing else happens
    assert (repo.path / ".git/config").read_bytes().startswith(before)
    said = as_the_user(repo)
    assert not (tmp_path / "ran").exists(), said
    assert not (repo.path / ".git/objects/info/alternates").exists()
    assert "missing" not in repo.git("fsck")


async def test_a_committed_repository_does_not_come_out_and_the_agent_is_told_what_to_do(
    repo: Project, tmp_path: Path
) -> None:
    one = await prepared(repo, tmp_path)
    head = repo.git("rev-parse", "HEAD")
    result = await settled(
        one,
        1,
        f"git init -q sub; cd sub; {COMMIT} --allow-empty -m x; cd ..; echo y > y; git add .; {COMMIT} -m nested",
    )
    assert "a repository inside the repository (sub)" in result.warning
    assert repo.git("rev-parse", "HEAD") == head == result.tree.head
    # Taken out by a later commit it still is in the history, and somebody may check it out.
    result = await settled(one, 2, f"git rm -q --cached sub; {COMMIT} -m out")
    assert "a repository inside the repository (sub)" in result.warning
    told = [words for words in result.warning.split("`") if words.startswith("git ")]
    result = await settled(one, 3, "; ".join(told).replace("git rm", "git rm --ignore-unmatch"))
    assert repo.git("log", "--format=%s") == "Iteration 3\nfirst"
    assert repo.git("ls-files") == "README.md\ny"


async def test_what_leads_to_a_submodule_cannot_be_replaced(repo: Project, tmp_path: Path) -> None:
    inner = Project(tmp_path / "inner")
    inner.init()
    inner.write("file")
    inner.commit()
    for place in ("libs/one", "two"):
        repo.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.path), place)
    repo.commit("submodules")
    repo.git("submodule", "deinit", "-q", "-f", "two")
    repo.git("-C", "libs/one", "config", "http.extraheader", "AUTHORIZATION: secret")
    one = await prepared(repo, tmp_path)
    assert "libs/one" in one.agent("git submodule status")
    assert one.agent("git -C libs/one log -1 --format=%s; grep -rl secret .git || true") == "by hand"
    replaced = "rm -rf {0}/.git; mv {0} away; mv libs gone; mkdir -p {0}; git init -q {0}; touch {0}/.git/mine"
    one.agent(replaced.format("libs/one"), check=False)
    one.agent(replaced.format("two"), check=False)
    assert not (repo.path / "libs/one/.git/mine").exists()
    assert (repo.path / "libs/one/.git").is_file()
    assert not (repo.path / "two/.git").exists()


async def test_settings_that_are_included_from_the_tree_are_only_read(repo: Project, tmp_path: Path) -> None:
    repo.write("conf/git.ini", "[user]\n\tname = Ada\n")
    repo.commit()
    repo.git("config", "include.path", "../conf/git.ini")
    one = await prepared(repo, tmp_path)
    one.agent(
        "echo '[core]' > conf/git.ini; rm -f conf/git.ini; mv conf away; mkdir conf; echo x > conf/git.ini", check=False
    )
    assert (repo.path / "conf/git.ini").read_text() == "[user]\n\tname = Ada\n"
    repo.git("config", "include.path", "../conf/other.ini")
    with pytest.raises(WorkspaceError, match="which is not there"):
        await boxed(repo, tmp_path)


async def test_a_new_branch_is_followed_and_a_branch_of_the_user_is_not_moved(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    main = repo.git("rev-parse", "main")
    await settled(one, 1, f"git switch -q -c feature; {COMMIT} --allow-empty -m feature")
    assert repo.git("symbolic-ref", "--short", "HEAD") == "feature"
    assert repo.git("log", "-1", "--format=%s") == "feature"
    result = await settled(one, 2, f"git switch -q main; {COMMIT} --allow-empty -m 'on main'; echo x > x.txt")
    assert "the folder is on branch main now" in result.elsewhere
    assert repo.git("rev-parse", "main") == main
    assert repo.git("log", "-1", "--format=%s", "refs/untildone/r1/agent/heads/main") == "on main"
    assert repo.git("log", "-1", "--format=%s", "HEAD") == "on main"
    result = await settled(one, 3, "git switch -q work; git merge -q feature; echo y > y.txt")
    assert (result.elsewhere, repo.git("symbolic-ref", "--short", "HEAD")) == ("", "work")
    assert repo.git("log", "-2", "--format=%s") == "Iteration 3\nfeature"


@pytest.mark.parametrize("name", ["work/sub", "renamed"])
async def test_a_branch_that_the_agent_renames_has_the_new_name_outside(
    name: str, repo: Project, tmp_path: Path
) -> None:
    one = await prepared(repo, tmp_path)
    result = await settled(one, 1, f"git branch -m {name}; {COMMIT} --allow-empty -m x; echo y > y")
    assert (result.elsewhere, result.held) == ("", None)
    assert repo.git("symbolic-ref", "--short", "HEAD") == name
    assert repo.git("branch", "--format=%(refname:short)").split() == ["main", name]
    assert repo.git("log", "-2", "--format=%s") == "Iteration 1\nx"
    result = await settled(one, 2, f"git checkout -q --detach HEAD~; git branch -D {name}; git switch -q -c other")
    assert repo.git("branch", "--format=%(refname:short)").split() == ["main", "other", name]


async def test_what_the_agent_leaves_beside_its_branch_is_kept(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    one.agent(
        f"git branch idea; git tag mine; {COMMIT} --allow-empty -m base; git switch -q idea; echo x > x; git add x"
    )
    one.agent(f"{COMMIT} -m 'an idea'; git switch -q work; echo y >> README.md; git stash -q")
    await one.workspace.leave()
    kept = repo.git("for-each-ref", "--format=%(refname) %(subject)", "refs/untildone/r1/agent")
    names = {line.split(" ", 1)[0].removeprefix("refs/untildone/r1/agent/") for line in kept.splitlines()}
    assert names == {"heads/idea", "tags/mine", "stash"}
    assert "heads/idea an idea" in kept


async def test_an_agent_that_only_reads_sees_what_is_checked_out(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    reader = await boxed(repo, tmp_path / "reader")
    inside = one.keeping.inside
    assert inside is not None
    keeping = replace(one.keeping, inside=replace(inside, readers=(reader.agents,)))
    one.workspace._repository = replace(one.repository, keeping=keeping)
    await settled(one, 1, f"echo x > x; git add x; {COMMIT} -m work")
    await one.workspace.look()
    assert reader.agent("git log -1 --format=%s; git status --porcelain") == "work"


async def test_a_filter_in_the_tree_runs_inside_only(repo: Project, tmp_path: Path) -> None:
    repo.write("tools/clean", f"#!/bin/sh\ntouch {tmp_path}/ran 2>/dev/null; tr a-z A-Z\n").chmod(0o755)
    repo.write(".gitattributes", "*.up filter=up\n")
    repo.commit()
    for key in ("clean", "smudge"):
        repo.git("config", f"filter.up.{key}", "./tools/clean")
    one = await prepared(repo, tmp_path)
    result = await settled(one, 1, "echo word > one.up; echo x > x")
    assert repo.git("cat-file", "-p", "HEAD:one.up") == "WORD"
    async with one.workspace.rooms(tmp_path / "rooms").open(result.commit) as checkout:
        assert Path(checkout.top, "one.up").read_text() == "WORD\n"
    assert not (tmp_path / "ran").exists()


async def test_a_detached_head_is_followed(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    await settled(one, 1, f"git switch -q --detach; {COMMIT} --allow-empty -m loose")
    assert repo.git("rev-parse", "--symbolic-full-name", "HEAD") == "HEAD"
    assert repo.git("log", "-1", "--format=%s") == "loose"
    assert repo.git("log", "-1", "--format=%s", "work") == "first"


async def test_what_the_user_does_outside_meanwhile_is_there_inside(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    repo.write("mine.txt")
    mine = repo.commit("of the user")
    await one.workspace.observe()
    assert one.agent("git rev-parse HEAD; git status --porcelain") == mine
    repo.git("switch", "-q", "-c", "other")
    repo.git("tag", "v2")
    assert (await one.workspace.observe()).branch == "other"
    assert one.agent("git symbolic-ref --short HEAD; git tag") == "other\nv2"


async def test_commits_on_both_sides_are_kept(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    one.agent(f"echo theirs > theirs.txt; git add -A; {COMMIT} -m theirs")
    repo.git("commit", "-q", "--allow-empty", "-m", "of the user")
    tree = await one.workspace.observe()
    assert repo.git("log", "-1", "--format=%s") == "of the user"
    assert repo.git("log", "-1", "--format=%s", "refs/untildone/r1/agent/heads/work") == "theirs"
    assert (tree.dirty, one.agent("git log -1 --format=%s")) == (("theirs.txt",), "of the user")


async def test_a_later_driver_finds_what_was_committed_when_the_first_one_died(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    one.agent(f"{COMMIT} --allow-empty -m late; git stash list; echo x > x; git add x; git stash -q")
    again = await prepared(repo, tmp_path)
    assert repo.git("log", "-1", "--format=%s") == "late"
    assert "WIP on work" in again.agent("git stash list")


@pytest.mark.parametrize("moved", [("update-ref", "refs/heads/work"), ()])
async def test_a_driver_that_dies_half_way_has_lost_nothing(
    moved: tuple[str, ...], repo: Project, tmp_path: Path
) -> None:
    """The commit is out, perhaps the branch moved; neither is written down, and the index is the old one."""
    one = await prepared(repo, tmp_path)
    known, index = tmp_path / "box/git-seen.json", repo.path / ".git/index"
    before, old = known.read_bytes(), index.read_bytes()
    start = repo.git("rev-parse", "HEAD")
    one.agent(f"echo new > new.txt; git add -A; {COMMIT} -m done")
    commit = (await one.workspace.observe()).head
    known.write_bytes(before)
    index.write_bytes(old)
    if not moved:
        repo.git("update-ref", "refs/heads/work", start)
    await prepared(repo, tmp_path)
    assert repo.git("rev-parse", "HEAD") == commit
    assert repo.git("status", "--porcelain") == ""


async def test_a_worktree_has_one_of_its_own_too(repo: Project, tmp_path: Path) -> None:
    repo.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = Project(tmp_path / "side")
    one = await prepared(side, tmp_path)
    await settled(
        one, 1, f"echo x > x.txt; git add -A; {COMMIT} -m 'in the worktree'; rm -f .git || echo y > y.txt || true"
    )
    assert repo.git("log", "-2", "--format=%s", "side") == "Iteration 1\nin the worktree"
    assert side.git("status", "--porcelain") == ""
    assert repo.git("log", "-1", "--format=%s") == "first"


async def test_a_branch_for_each_iteration(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path, branch_per="iteration")
    for number in (1, 2):
        branch = await one.workspace.begin_iteration(number)
        await settled(one, number, f"echo {number} > {number}.txt")
        assert repo.git("symbolic-ref", "--short", "HEAD") == branch == one.agent("git symbolic-ref --short HEAD")
    assert repo.git("log", "--format=%s") == "Iteration 2\nIteration 1\nfirst"


async def test_a_repository_without_a_commit(plain: Project, tmp_path: Path) -> None:
    plain.init()
    one = await prepared(plain, tmp_path)
    await settled(one, 1, "echo x > x.txt")
    assert plain.git("log", "--format=%s", "main") == "Iteration 1"
    assert plain.git("status", "--porcelain") == ""


async def test_objects_that_are_not_what_they_should_be_stay_inside(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    head = repo.git("rev-parse", "HEAD")
    bad = "b=$(echo x | git hash-object -w --stdin); t=$(printf '100644 blob %s\\t.git\\n' $b | git mktree); "
    bad += "c=$(git -c user.name=a -c user.email=a@x commit-tree -m bad $t); git update-ref HEAD $c; echo x > x"
    assert "cannot be taken over" in (await settled(one, 1, bad)).warning
    assert repo.git("rev-parse", "HEAD") == head


async def test_an_agent_that_destroys_its_repository_gets_another_one(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    one.agent("rm -rf .git/* .git/.??*", check=False)
    head = (await one.workspace.observe()).head
    assert one.agent("git log -1 --format=%s; git status --porcelain; git rev-parse HEAD") == f"first\n{head}"


async def test_a_stale_lock_of_the_agents_git_is_removed(repo: Project, tmp_path: Path) -> None:
    one = await prepared(repo, tmp_path)
    one.agent("touch -d '1 hour ago' .git/index.lock")
    result = await settled(one, 1, "echo x > x.txt")
    assert "left behind by a git that is not running any more" in result.warning
    assert repo.git("log", "-1", "--format=%s") == "Iteration 1"


async def test_files_of_others_do_not_get_in_by_links(repo: Project, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    one = await prepared(repo, tmp_path)
    start = await one.workspace.observe()
    one.agent(f"rm .git/index; ln -s {secret} .git/index; mkdir x; echo x > x/x", check=False)
    result = await one.workspace.settle(start, iteration_num=1, message="m")
    assert (result.warning, repo.git("show", "HEAD:x/x")) == ("", "x")
    found = subprocess.run(
        ["grep", "-rl", "the secret", str(tmp_path / "box")], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("address", "without"),
    [
        ("https://ada:p@ss@example.org/x.git", "https://example.org/x.git"),
        ("https://token@example.org:8443/x", "https://example.org:8443/x"),
        ("https://example.org/x?token=1#2", "https://example.org/x"),
        ("git@example.org:x.git", "git@example.org:x.git"),
        ("ssh://git@example.org/x", "ssh://git@example.org/x"),
        ("/srv/x.git", "/srv/x.git"),
    ],
)
def test_addresses_have_no_login_inside(address: str, without: str) -> None:
    assert without_login(address) == without


@pytest.mark.parametrize("what", ["mkdir -p {0}/x; chmod 0 {0}", "ln -s /etc/passwd {0}", "mkfifo {0}"])
@pytest.mark.parametrize("name", ["index", "index.lock", "index.untildone"])
async def test_what_is_no_index_is_put_aside(repo: Project, tmp_path: Path, name: str, what: str) -> None:
    one = await prepared(repo, tmp_path)
    result = await settled(one, 1, f"rm -f .git/{name}; {what.format(f'.git/{name}')}; echo n > n")
    assert repo.git("show", "--name-only", "--format=") == "n"
    assert result.tree.dirty == ()
    assert one.agent("git status --porcelain") == ""


async def test_hooks_that_a_link_leads_to_are_those_of_the_tree(repo: Project, tmp_path: Path) -> None:
    repo.write("githooks/pre-commit", "#!/bin/sh\necho x > hooked.txt; git add hooked.txt\n").chmod(0o755)
    repo.commit()
    for file in (repo.path / ".git" / "hooks").iterdir():
        file.unlink()
    (repo.path / ".git" / "hooks").rmdir()
    (repo.path / ".git" / "hooks").symlink_to("../githooks")
    one = await prepared(repo, tmp_path)
    await settled(one, 1, "echo new > new.txt")
    assert repo.git("show", "--name-only", "--format=") == "hooked.txt\nnew.txt"
