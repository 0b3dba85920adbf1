"""Repositories behind a login, over HTTP, served by git itself."""

import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


class GitServer(ThreadingHTTPServer):
    """All bare repositories of a folder, for one user."""

    daemon_threads = True

    def __init__(self, folder: Path, user: str, password: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.expected = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.asked: list[tuple[str, str]] = []
        """Path and Authorization header of each request that was let in."""


class _Handler(BaseHTTPRequestHandler):
    server: GitServer

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        login = self.headers.get("Authorization", "")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if login != self.server.expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        self.server.asked.append((self.path, login))
        place = urlsplit(self.path)
        told = {
            "GIT_PROJECT_ROOT": str(self.server.folder), "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "user",
            "REQUEST_METHOD": self.command, "PATH_INFO": place.path, "QUERY_STRING": place.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "PATH": "/usr/local/bin:/usr/bin:/bin",
        }  # fmt: skip
        safe = ["git", "-c", "safe.directory=*", "http-backend"]
        done = subprocess.run(safe, input=body, env=told, capture_output=True, check=True).stdout
        head, _, content = done.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def git_server(folder: Path, user: str, password: str) -> Iterator[GitServer]:
    with GitServer(folder, user, password) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
