"""A machine with systemd as its first process, in a container."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deploy.docker_kit import Docker, run, until

# Not --privileged: that asks for every capability there is, also those that this machine may not have itself.
CAPABILITIES = ("SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH", "SYS_NICE", "SYSLOG")
CONTAINER = "machine"
IMAGE = """
FROM python:3.12-slim
RUN systemctl mask postgresql.service
COPY . /tree
WORKDIR /tree
RUN pip wheel --no-cache-dir --wheel-dir /wheels --constraint requirements.lock .
COPY next/src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels-next .
STOPSIGNAL SIGRTMIN+3
ENV container=docker PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels
ENTRYPOINT ["/sbin/init"]
"""
EVENT = '{"event_type": "iteration.started", "event_data": {"iteration_num": 1}, "source": "worker"}'


class Machine:
    """What root types there."""

    def __init__(self, docker: Docker) -> None:
        self._docker = docker

    def shell(self, script: str) -> str:
        return self._docker("exec", "-w", "/tree", CONTAINER, "sh", "-ec", script, timeout=300)

    def await_server(self) -> None:
        until(lambda: self._curl("/readyz || true") == '{"status":"ok"}', "the server of the machine")

    def post(self, sandbox: str) -> None:
        self.await_server()
        headers = "-H 'Content-Type: application/json'"
        assert "received" in self._curl(f"/api/v1/sandboxes/{sandbox}/events {headers} -d '{EVENT}'")

    def boxes(self) -> set[str]:
        return {run["sandbox_id"] for run in json.loads(self._curl("/api/v1/runs"))["runs"]}

    def _curl(self, rest: str) -> str:
        return self.shell(f"curl -sf http://127.0.0.1:8642{rest}")


@contextmanager
def machine_with_systemd(docker: Docker, tree: Path, before: Path) -> Iterator[Machine]:
    """With the product's wheels: those of `before` in /wheels, the next version, from `tree`, in /wheels-next."""
    shutil.copytree(tree / "src", before / "next" / "src")
    (before / "Dockerfile").write_text(IMAGE)
    docker("build", "-q", "-t", CONTAINER, before, timeout=900)
    with own_control_groups(docker.folder / "cgroup") as groups:
        rights = [word for name in CAPABILITIES for word in ("--cap-add", name)]
        open_doors = [
            word for name in ("seccomp", "apparmor", "systempaths") for word in ("--security-opt", f"{name}=unconfined")
        ]
        places = ("--cgroupns=host", "-v", f"{groups}:/sys/fs/cgroup:rw", "--tmpfs", "/run", "--tmpfs", "/tmp")
        docker("run", "-d", "--name", CONTAINER, *rights, *open_doors, *places, CONTAINER)
        machine = Machine(docker)
        try:
            until(lambda: is_up(machine), "systemd")
            yield machine
        finally:
            docker("rm", "-f", "-v", CONTAINER)


def is_up(machine: Machine) -> bool:
    return machine.shell("systemctl is-system-running || true") in {"running", "degraded", "starting"}


@contextmanager
def own_control_groups(place: Path) -> Iterator[Path]:
    """A branch of the second version of control groups, on machines that use the first one, too."""
    place.mkdir()
    run("mount", "-t", "cgroup2", "none", place)
    own = place / "untildone-test"
    own.mkdir()
    try:
        yield own
    finally:
        for group in sorted(own.rglob("*/"), reverse=True):
            with suppress(OSError):
                group.rmdir()
        own.rmdir()
        run("umount", place)
