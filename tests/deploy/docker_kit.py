"""A docker of the tests' own, with images that are made here: no registry is asked for anything."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

SUITE = "trixie"
PACKAGES = (
    "python3",
    "python3-pip",
    "python3-venv",
    "ca-certificates",
    "postgresql",
    "sqlite3",
    "curl",
    "systemd-sysv",
)
PLUGINS = ("docker-compose", "docker-buildx")
PATIENCE = 600.0
AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
HERE = Path(__file__).parent


def run(*words: str | Path, timeout: float = PATIENCE, **more: Any) -> str:
    """What a command prints; if it fails, everything it said."""
    done = subprocess.run(
        words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False, **more
    )
    assert done.returncode == 0, f"{words} failed ({done.returncode}):\n{done.stdout[-4000:]}"
    return str(done.stdout)


def until(look: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not look():
        assert time.monotonic() < deadline, f"{what} did not come about within {patience:.0f} s"
        time.sleep(0.2)


class Docker:
    """A daemon that was started for this test, and commands that speak to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        socket = f"unix://{folder}/docker.sock"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "DOCKER_CONFIG": str(folder / "config"),
            "DOCKER_HOST": socket,
        }
        options = {
            "host": socket,
            "data-root": folder / "data",
            "exec-root": folder / "exec",
            "pidfile": folder / "pid",
        }
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                ["dockerd", *(f"--{name}={value}" for name, value in options.items())],
                env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        until(self._answers, "the docker daemon")

    def __call__(self, *words: str | Path, timeout: float = PATIENCE) -> str:
        return run("docker", *words, timeout=timeout, env=self.env).strip()

    def shell(
        self, script: str, folder: Path, *, timeout: float = PATIENCE, more: Mapping[str, str] | None = None
    ) -> str:
        """Commands as a person types them."""
        return run("sh", "-ec", script, timeout=timeout, cwd=folder, env={**self.env, **(more or {})}).strip()

    def inspect(self, container: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("inspect", container))[0]
        return found

    def clear(self) -> None:
        """Nothing is left behind: neither containers nor networks, nor what they keep."""
        for words in (("container", "prune", "-f"), ("network", "prune", "-f"), ("volume", "prune", "-f")):
            if words[0] == "container" and (running := self("ps", "-aq").split()):
                self("rm", "-f", "-v", *running)
            self(*words)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        asked = subprocess.run(["docker", "info"], env=self.env, capture_output=True, timeout=30, check=False)
        return asked.returncode == 0


def is_docker_at_work() -> bool:
    """Whether this machine has one that we would disturb: both would write the packet filter's rules."""
    names = (path.read_text() for path in Path("/proc").glob("[0-9]*/comm") if path.exists())
    return any(name.strip() == "dockerd" for name in names)


@contextmanager
def docker_at_work(folder: Path) -> Iterator[Docker]:
    """A docker with the base images of `deploy/`, made of Debian's packages."""
    with ExitStack() as undo:
        undo.enter_context(network_as_it_was())
        undo.callback(unmount_below, folder)
        tree = folder / "debian"
        make_debian(tree)
        take_plugins(tree, folder / "config" / "cli-plugins")
        docker = Docker(folder)
        undo.callback(docker.stop)
        undo.callback(docker.clear)
        import_images(docker, tree)
        shutil.rmtree(tree)
        yield docker


def make_debian(tree: Path) -> None:
    """A Debian in a folder, from where this machine gets its own packages."""
    targets = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main")
    mirror = next(uri for uri in targets.split() if uri.rstrip("/").endswith("debian"))
    run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, tree, mirror, timeout=900)
    # The images of Python have both by themselves.
    (tree / "usr/bin/python").symlink_to("python3")
    for mark in tree.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        mark.unlink()
    # What this machine trusts, and where it gets packages of Python: no repository knows that.
    shutil.copyfile(Path("/") / AUTHORITIES, tree / AUTHORITIES)
    for settings in (path for path in [Path("/etc/pip.conf")] if path.exists()):
        shutil.copyfile(settings, tree / "etc/pip.conf")


def take_plugins(tree: Path, place: Path) -> None:
    """`docker compose` and `docker build` need a plugin each, which older systems do not have."""
    run("chroot", tree, "apt-get", "update", "-qq")
    run("chroot", tree, "sh", "-ec", f"cd /tmp && apt-get download -qq {' '.join(PLUGINS)}")
    place.mkdir(parents=True)
    for package in sorted((tree / "tmp").glob("*.deb")):
        run("dpkg-deb", "-x", package, tree / "tmp" / "plugins")
        package.unlink()
    for plugin in PLUGINS:
        shutil.copy(tree / "tmp/plugins/usr/libexec/docker/cli-plugins" / plugin, place)
    shutil.rmtree(tree / "tmp/plugins")


def import_images(docker: Docker, tree: Path) -> None:
    with subprocess.Popen(["tar", "-C", str(tree), "-c", "."], stdout=subprocess.PIPE) as packed:
        run("docker", "import", "-", "python:3.12-slim", env=docker.env, stdin=packed.stdout, timeout=300)
    docker("build", "-q", "-t", "postgres:16", HERE / "postgres", timeout=300)


@contextmanager
def network_as_it_was() -> Iterator[None]:
    """Docker leaves rules, a bridge and a switch behind."""
    forward = Path("/proc/sys/net/ipv4/ip_forward")
    rules, was = run("iptables-save"), forward.read_text()
    yield
    run("iptables-restore", input="".join(f"{table}\n" for table in emptied(rules)))
    forward.write_text(was)
    if Path("/sys/class/net/docker0").exists():
        run("ip", "link", "delete", "docker0")


def emptied(rules: str) -> list[str]:
    """The rules as they were; tables that nobody used before are empty again."""
    lines = [line for line in rules.splitlines() if not line.startswith("#")]
    for table, chains in {
        "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
        "filter": ("INPUT", "FORWARD", "OUTPUT"),
    }.items():
        if f"*{table}" not in lines:
            lines += [f"*{table}", *(f":{chain} ACCEPT [0:0]" for chain in chains), "COMMIT"]
    return lines


def unmount_below(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((place for place in mounts if place.startswith(f"{folder}/")), reverse=True):
        run("umount", "-l", place)


def copy_of_the_tree(place: Path, root: Path) -> None:
    """What the image is built from."""
    place.mkdir()
    for name in ("src", "deploy"):
        shutil.copytree(root / name, place / name, ignore=shutil.ignore_patterns("__pycache__", ".env"))
    for name in ("pyproject.toml", "requirements.lock", "README.md", "LICENSE"):
        shutil.copy(root / name, place)


def blocks(page: str, heading: str) -> list[str]:
    """What people are told to type below a heading."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    return [part.split("```")[0] for part in section.split("```sh\n")[1:]]
