"""A made-up Anthropic behind TLS: the scripted model, and who renews a login. Names lead to it by a hosts file."""

import http.client
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

NAMES = ("api.anthropic.com", "platform.claude.com", "console.anthropic.com", "claude.ai")
RENEWED = {"access_token": "sk-ant-oat01-renewed", "refresh_token": "sk-ant-ort01-renewed", "expires_in": 28800}


class LoginServer(ThreadingHTTPServer):
    """Answers for all names of Anthropic that a login needs."""

    daemon_threads = True

    def __init__(self, folder: Path, model: str) -> None:
        # The port is given, so that tests which run side by side need addresses of their own.
        self.address = f"127.{uuid4().int % 200 + 50}.{uuid4().int % 250}.{uuid4().int % 250 + 1}"
        super().__init__((self.address, 443), _Handler)
        self.model = urlsplit(model)
        self.authority, certificate = certificates(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.asked: list[tuple[str, str, str]] = []
        """Host, path and Authorization header."""
        self.refused: set[str] = set()
        """Access tokens that are of no use any more, and cannot be renewed either."""
        self.after_message: Callable[[], None] = lambda: None
        """Called when the model was asked and before it answers."""
        self.hosts = folder / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{self.address} {name}\n" for name in NAMES))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LoginServer

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        login = self.headers.get("Authorization", "")
        path = self.path.partition("?")[0]
        self.server.asked.append((self.headers.get("Host", ""), path, login))
        if path == "/v1/oauth/token" and self.server.refused:
            self._say(400, {"error": "invalid_grant", "error_description": "Refresh token not found or invalid"})
        elif path == "/v1/oauth/token":
            self._say(200, {**RENEWED, "token_type": "Bearer", "scope": "user:inference user:profile"})
        elif path.startswith("/v1/"):
            self.server.after_message()
            if login.removeprefix("Bearer ") in self.server.refused:
                error = {"type": "authentication_error", "message": "OAuth token has expired"}
                self._say(401, {"type": "error", "error": error})
            else:
                self._pass_on(body)
        else:
            self._say(404, {"error": {"type": "not_found_error", "message": "nothing is here"}})

    def _say(self, status: int, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _pass_on(self, body: bytes) -> None:
        kept = {name: value for name, value in self.headers.items() if name.lower() not in {"host", "connection"}}
        with closing(http.client.HTTPConnection(self.server.model.netloc)) as model:
            model.request(self.command, self.path, body, kept)
            reply = model.getresponse()
            data = reply.read()
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def certificates(folder: Path) -> tuple[Path, Path]:
    """An authority, and a certificate of it with its key for all names."""
    authority, key, request, leaf = (folder / name for name in ("ca.pem", "ca.key", "leaf.csr", "leaf.pem"))
    names = folder / "names"
    names.write_text(f"subjectAltName={','.join(f'DNS:{name}' for name in NAMES)}")
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj"]
    for argv in (
        [*new, "/CN=made up", "-x509", "-days", "2", "-keyout", key, "-out", authority],
        [*new, "/CN=made up too", "-keyout", leaf, "-out", request],
    ):
        subprocess.run(argv, check=True, capture_output=True)
    sign = ["openssl", "x509", "-req", "-days", "2", "-in", request, "-CA", authority, "-CAkey", key, "-CAcreateserial"]
    signed = subprocess.run([*sign, "-extfile", names], check=True, capture_output=True).stdout
    leaf.write_bytes(leaf.read_bytes() + signed)
    return authority, leaf


@contextmanager
def login_server(folder: Path, model: str) -> Iterator[LoginServer]:
    folder.mkdir()
    with LoginServer(folder, model) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
