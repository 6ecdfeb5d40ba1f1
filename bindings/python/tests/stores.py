"""Servers of Redis or Valkey, one process each: a test starts its own and nothing of it stays."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# How long a server may take to answer for the first time: a machine may be busy.
PATIENCE = 30.0


class Store:
    """A running server, at a Unix socket in a folder of its own and at no port. It keeps nothing on disk."""

    def __init__(self, program: str, folder: Path, options: list[str]) -> None:
        self.program, self.folder, self.options = program, folder, options
        self.url = f"redis+unix://{folder}/socket"
        self.start()

    def start(self) -> None:
        (self.folder / "socket").unlink(missing_ok=True)
        arguments = ["--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly", "no", *self.options]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([self.program, *arguments], cwd=self.folder, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < until, (self.folder / "log").read_text()
            time.sleep(0.005)

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.folder / "socket"))
                connection.sendall(b"PING\r\n")
                return connection.recv(1) in (b"+", b"-")
            except OSError:
                return False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(*options: str) -> Iterator[Store]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        missing = "redis-server is missing: install it, or a valkey-server"
        assert "TOLLGATE_ALL" not in os.environ, missing
        pytest.skip(missing)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(program, Path(folder), list(options))
        try:
            yield store
        finally:
            store.kill()
