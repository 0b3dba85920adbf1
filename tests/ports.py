"""Ports on loopback for programs that are told theirs, and that may be ended and started again at the same one."""

import socket


def own_port() -> int:
    """A port that no other program is given as long as this process lives.

    Until somebody listens there, any connection of this machine could be given it for its own end. A socket that is
    bound and does not listen keeps it; whoever sets SO_REUSEADDR, as servers do, may listen beside that.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    port: int = kept.getsockname()[1]
    kept.detach()
    return port
