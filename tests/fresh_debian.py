"""Tries the two commands of the README on a fresh minimal Debian: python3 tests/fresh_debian.py FOLDER

Needs root and debootstrap. The Debian is made in FOLDER, and its packages come from where this machine gets its own.

1. As an ordinary user, both commands name each missing package and the command that installs it, and exit with 2.
2. As root, both succeed.
3. As the same ordinary user, in a clone of their own, both succeed now.
"""

import ast
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from deploy.docker_kit import AUTHORITIES, run

ROOT = Path(__file__).parent.parent
OURS = "etc/ssl/of-the-machine-around.crt"
"""Not where Debian has its own: installing its package writes that anew."""
SUITE = "bookworm"
USER = "newcomer"
PACKAGES = (
    "python3-venv",
    "bubblewrap",
    "socat",
    "iproute2",
    "procps",
    "chromium",
    "curl",
    "openssh-client",
    "openssl",
    "make",
    "libatomic1",
    "postgresql",
)
INSIDE = """
set -e
mount --bind "$1" "$1"
mount --rbind /dev "$1/dev"
mount --rbind /sys "$1/sys"
mount -t proc proc "$1/proc"
mkdir -p "$1/around"
cd "$1"
pivot_root . around
umount -l /around
shift
exec "$@"
"""
"""A new root, not `chroot`: there the kernel lets nobody make the namespaces of a sandbox."""


def make_debian(tree: Path) -> None:
    targets = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main")
    mirror = next(uri for uri in targets.split() if uri.rstrip("/").endswith("debian"))
    run("debootstrap", "--variant=minbase", "--include=python3,git", SUITE, tree, mirror, timeout=1800)
    # How this machine reaches its package indexes.
    (tree / "etc/ssl").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path("/") / AUTHORITIES, tree / OURS)
    for name in ("etc/resolv.conf", "etc/hosts"):
        if (Path("/") / name).exists():
            shutil.copyfile(Path("/") / name, tree / name)
    for settings in Path("/etc/apt/apt.conf.d").iterdir():
        shutil.copy(settings, tree / "etc/apt/apt.conf.d")
    run("chroot", tree, "useradd", "-m", USER)
    for home in ("root", f"home/{USER}"):
        run("git", "clone", "-q", ROOT, tree / home / "untildone")
    run("chroot", tree, "chown", "-R", USER, f"/home/{USER}")


def pip_settings() -> dict[str, str]:
    """What pip is told on this machine, in whatever place, as variables."""
    lines = run(sys.executable, "-m", "pip", "config", "list").splitlines()
    pairs = (line.partition("=") for line in lines)
    return {
        f"PIP_{key.rpartition('.')[2].upper().replace('-', '_')}": str(ast.literal_eval(value))
        for key, _, value in pairs
    }


def dev(tree: Path, user: str, verb: str) -> tuple[int, str]:
    """`./dev VERB` of that user, in namespaces of its own: what it starts ends with it."""
    home = "/root" if user == "root" else f"/home/{user}"
    known = pip_settings() | {"PIP_CERT": f"/{OURS}", "SSL_CERT_FILE": f"/{OURS}"}
    given = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": home, **known}
    argv: Sequence[str | Path] = (
        "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", INSIDE, "sh",
        tree, "chroot", f"--userspec={user}", "/", "sh", "-c", f"cd {home}/untildone && ./dev {verb}",
    )  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(argv, env=given, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    last = done.stdout.strip().rpartition("\n")[2]
    print(f"{user}: ./dev {verb}: exit {done.returncode} after {time.monotonic() - began:.0f} s: {last}", flush=True)
    return done.returncode, done.stdout


def main(folder: str) -> int:
    tree = Path(folder).resolve() / "debian"
    if not tree.exists():
        make_debian(tree)
    wrong: list[str] = []

    def expect(user: str, verb: str, wanted: int, *named: str) -> None:
        code, said = dev(tree, user, verb)
        lacking = [name for name in named if name not in said]
        if code != wanted or lacking:
            wrong.append(f"{user}: ./dev {verb}: exit {code}, not named: {lacking}\n{said[-6000:]}")

    expect(USER, "rehearse", 2, "python3-venv", "sudo apt-get install")
    expect(USER, "test -q", 2, *PACKAGES, "sudo apt-get install")
    for user in ("root", USER):
        expect(user, "rehearse", 0)
        expect(user, "test -q", 0)
    print("\n".join(wrong) or "all as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
