"""What a run sends along while it works."""

import subprocess
from pathlib import Path

import pytest

from untildone.core.policy import RunSpec
from untildone.git.bundle import unwrapped
from untildone.git.workspace import open_workspace
from untildone.moving import _tree
from untildone.uplink.known_secrets import KnownSecrets

pytestmark = pytest.mark.anyio


async def test_a_file_with_a_secret_of_this_machine_does_not_travel(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "work"], cwd=folder, check=True, timeout=30)
    (folder / ".env").write_text("A_KEY=inDotEnv99x\n")
    (folder / "server.log").write_text("A_KEY is inDotEnv99x\n")
    (folder / "trace.txt").write_text("token: ofTheProcess42\n")
    (folder / "work.txt").write_text("work\n")
    secrets = KnownSecrets({"B_TOKEN": "ofTheProcess42"}, str(folder), now=lambda: 1.0)
    spec = RunSpec(goal="g", name="n", cwd=str(folder))
    made = await _tree(await open_workspace(spec, run_id="r1", private=tmp_path / "folders"), "r1", secrets)("")
    assert made is not None
    assert set(unwrapped(made[1])[0].left_out) == {".env", "server.log", "trace.txt"}
