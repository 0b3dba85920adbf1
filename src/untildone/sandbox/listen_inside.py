"""Opens listening sockets in the network of another process, and hands them to whoever asked.

Run as `python3 -I -S listen_inside.py PORT[,PORT...] SOCKET [PID]`: SOCKET is an inherited Unix socket over which the
new ones are sent, or the path of one. Without PID, the network is that of this process. With it, this must be a process
of its own: one that has entered another network cannot come back. What runs in that network needs no program for it,
and can do nothing to the sockets but connect.
"""

import ctypes
import fcntl
import os
import socket
import sys

NEW_NETWORK = 0x40000000
NEW_USER = 0x10000000
OWNER_OF = 0xB701
"""Asks a namespace for the namespace of users it belongs to: who enters that one may enter this one."""
IP_FREEBIND = 15
_WAITING = 256


def main(ports: str, wanted_by: str, pid: str = "") -> int:
    """Do it; one line on stderr where it cannot be done."""
    try:
        if pid:
            _enter_network(pid)
        listening = [_listening(int(port)) for port in ports.split(",")]
        socket.send_fds(_connected(wanted_by), [b"."], [one.fileno() for one in listening])
    except OSError as trouble:
        sys.stderr.write(f"{trouble.strerror or trouble}\n")
        return 1
    return 0


def _listening(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # The loopback device may not be up yet.
    listening.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(_WAITING)
    return listening


def _connected(place: str) -> socket.socket:
    if place.isdigit():
        return socket.socket(fileno=int(place))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(place)
    return connection


def _enter_network(pid: str) -> None:
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    owner = fcntl.ioctl(network, OWNER_OF)
    if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:  # noqa: PTH116 - loads nothing
        _enter(owner, NEW_USER)
    _enter(network, NEW_NETWORK)


def _enter(namespace: int, kind: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, kind):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
