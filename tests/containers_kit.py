"""Engines for containers of the tests' own, with an image that is made here: no registry is asked for anything."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.docker_kit import AUTHORITIES, run, unmount_below, until

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "curl", "git", "procps", "python3")
IMAGE = "untildone-test"
STORAGE = '[storage]\ndriver = "overlay"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/graph"\n'
# Without systemd and without a bridge: nothing of this machine's network is touched.
SETTINGS = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
cgroupns = "host"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
"""


class Engine:
    """How an engine is asked here."""

    def __init__(self, kind: str, env: dict[str, str]) -> None:
        self.kind = kind
        self.env = env
        """What a user who speaks to it has in the environment."""

    def __call__(self, *words: str) -> str:
        return run(self.kind, *words, env={"PATH": os.environ["PATH"], **self.env}).strip()

    def containers(self) -> list[str]:
        """The names of all that are there."""
        return self("ps", "--all", "--format", "{{.Names}}").split()


class Daemon:
    """A docker daemon that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix://{folder}/docker.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
        options = [f"--{name}={self.folder / place}" for name, place in places.items()]
        options += [f"--host={self.address}", "--iptables=false", "--ip6tables=false", "--bridge=none"]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["dockerd", *options], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._answers, "the docker daemon")

    def kill(self) -> None:
        """As a machine that runs out of memory does; what it started goes on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        for file in ("pid", "exec/containerd/containerd.pid"):
            (self.folder / file).unlink(missing_ok=True)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        env = {"PATH": os.environ["PATH"], "DOCKER_HOST": self.address}
        return subprocess.run(["docker", "info"], env=env, capture_output=True, timeout=30, check=False).returncode == 0


@contextmanager
def docker_engine() -> Iterator[tuple[Engine, Daemon]]:
    """A docker with the image; everything is gone afterwards. It needs root."""
    with _folder("docker") as folder:
        daemon = Daemon(folder)
        try:
            engine = Engine("docker", {"DOCKER_HOST": daemon.address, "DOCKER_CONFIG": str(folder / "config")})
            engine("import", str(archive()), IMAGE)
            yield engine, daemon
        finally:
            daemon.stop()


@contextmanager
def podman_engine() -> Iterator[Engine]:
    """A podman with the image, beside the user's own."""
    with _folder("podman") as folder:
        (folder / "storage.conf").write_text(STORAGE.format(folder=folder))
        (folder / "containers.conf").write_text(SETTINGS)
        settings = {
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "XDG_RUNTIME_DIR": str(folder),
        }
        engine = Engine("podman", settings)
        engine("import", str(archive()), IMAGE)
        yield engine


@contextmanager
def _folder(kind: str) -> Iterator[Path]:
    # Not below the folder of the test: the paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix=f"untildone-{kind}-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        try:
            yield Path(name)
        finally:
            unmount_below(Path(name))


def archive() -> Path:
    """A small Debian, packed once for all tests on this machine."""
    kept = Path("/var/tmp") / f"untildone-{SUITE}-{'-'.join(PACKAGES)}.tar"
    if not kept.exists():
        with tempfile.TemporaryDirectory(prefix="untildone-debian-", dir="/var/tmp") as name:
            tree, packed = Path(name) / "tree", Path(name) / "packed.tar"
            targets = run(
                "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main"
            )
            mirror = next(uri for uri in targets.split() if uri.rstrip("/").endswith("debian"))
            run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, tree, mirror, timeout=900)
            shutil.copyfile(Path("/") / AUTHORITIES, tree / AUTHORITIES)
            run("tar", "-C", tree, "-cf", packed, ".")
            packed.replace(kept)  # another worker may have been faster
    return kept
