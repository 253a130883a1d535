"""Starts the real server, and a private PostgreSQL, for the tests."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]


def binary() -> Path:
    """The server's binary: ABIDE_BIN, else the one that cargo has built."""
    given = os.environ.get("ABIDE_BIN")
    found = Path(given) if given else REPO / "target" / "debug" / "abide"
    if not found.exists():
        raise RuntimeError(f"{found} is not there: cargo build -p abide-server, or set ABIDE_BIN")
    return found


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(home: Path) -> dict[str, str]:
    """What the binary is to know of the world: nothing of this one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ABIDE_")}
    return {**clean, "HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home)}


class Server:
    """An ``abide serve`` that can be killed and started again, at the same place over the same store."""

    def __init__(self, store: str, home: Path, tls: Path | None = None) -> None:
        self.store = store
        self.port = free_port()
        self._tls = tls
        self.url = f"https://localhost:{self.port}" if tls else f"http://127.0.0.1:{self.port}"
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)

    @property
    def log(self) -> Path:
        return self._home / "server.log"

    def start(self) -> None:
        """Starts it and waits until it is ready."""
        files = {"tls.cert": "server.pem", "tls.key": "server.key"} if self._tls else {}
        tls = [f"--set={key}={self._tls}/{name}" for key, name in files.items()]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(binary()), "serve", "--store", self.store, "--listen", f"127.0.0.1:{self.port}", *tls],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                env=environment(self._home),
            )
        give_up = time.monotonic() + 20
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"the server did not become ready:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        try:
            trusted = ssl.create_default_context(cafile=self._tls / "ca.pem") if self._tls else None
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=1, context=trusted) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def token(self, role: str) -> str:
        """A new token of that role."""
        command = [str(binary()), "token", "create", "--role", role, "--store", self.store]
        made = subprocess.run(command, env=environment(self._home), capture_output=True, text=True, check=True)
        return made.stdout.strip()

    def kill(self) -> None:
        """Kills it on the spot."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it as it should be."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise RuntimeError("the server did not end by SIGTERM") from None
            finally:
                self._process = None


class Postgres:
    """A PostgreSQL: ABIDE_TEST_PG, else a private one of ``abide-pgtest`` that lives as long as this."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        given = os.environ.get("ABIDE_TEST_PG")
        if given:
            self.url = given
            return
        starter = Path(os.environ.get("ABIDE_TEST_PGTEST") or binary().with_name("abide-pgtest"))
        if not starter.exists():
            raise RuntimeError(f"{starter} is not there: cargo build -p abide-pgtest, or set ABIDE_TEST_PG")
        self._process = subprocess.Popen([str(starter)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError("abide-pgtest did not start a PostgreSQL")

    def stop(self) -> None:
        """Ends it, if it is ours."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(30)
