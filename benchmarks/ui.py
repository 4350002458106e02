"""The framework of `sparkbolt ui`: NiceGUI against Starlette with pages that the server renders.

What do 20 open pages of 200 components cost the server, and how soon is one more there?

Both show one equal page (``ui_programs``): a table of 200 rows and a chart, with new numbers every two seconds. The
clients speak the protocols that browsers would: NiceGUI's WebSocket, and a request for the parts that change. Both
live in environments of their own under ``.bench/``, installed from the package index at the first call.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.figures import Aim, Figure
from benchmarks.runs import Options
from benchmarks.text import CACHE

PROGRAMS = Path(__file__).parent / "ui_programs"
SERVERS = {
    "starlette": ("starlette==1.10.0", "uvicorn==0.54.0", "jinja2==3.1.6"),
    "nicegui": ("nicegui==3.18.0",),
}
CLIENTS = ("httpx==0.28.1", "psutil==7.2.2", "python-socketio==5.18.1", "aiohttp==3.14.5")
START_SECS = 60.0
MIB = 1 << 20


def environment(name: str, pins: Sequence[str]) -> Path:
    """The Python that has these packages; made at the first call.

    Raises:
        RuntimeError: they cannot be installed.
    """
    home = CACHE / f"ui-{name}"
    python, stamp = home / "bin" / "python", home / "pins"
    if stamp.exists() and stamp.read_text() == "\n".join(pins):
        return python
    uv = [shutil.which("uv") or "uv"] if shutil.which("uv") else [sys.executable, "-m", "uv"]
    for command in (
        [*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)],
        [*uv, "pip", "install", "--quiet", "--python", str(python), *pins],
    ):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {result.returncode}:\n{result.stderr[-2000:]}")
    stamp.write_text("\n".join(pins))
    return python


def size_of(directory: Path) -> int:
    """The bytes of all files below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def free_port() -> int:
    """A port of loopback on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def answered(port: int, server: subprocess.Popen[bytes]) -> float:
    """Wait for the first page; return after how many seconds it came.

    Raises:
        RuntimeError: it did not come.
    """
    began = time.monotonic()
    while time.monotonic() < began + START_SECS and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5):
                return time.monotonic() - began
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise RuntimeError(f"the server did not answer in {START_SECS:g} s (exit code {server.poll()})")


def measured(kind: str, secs: float) -> dict[str, float]:
    """Serve the page with 20 clients for so many seconds."""
    python, clients = environment(kind, SERVERS[kind]), environment("clients", CLIENTS)
    port = free_port()
    server = subprocess.Popen([str(python), f"{kind}_page.py", str(port)], cwd=PROGRAMS, env={**os.environ})
    try:
        start = answered(port, server)
        result = subprocess.run(
            [str(clients), "clients.py", kind, str(port), str(secs), str(server.pid)],
            cwd=PROGRAMS,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise RuntimeError(f"the clients of {kind} ended with {result.returncode}:\n{result.stderr[-2000:]}")
        told: dict[str, float] = json.loads(result.stdout)
    finally:
        server.terminate()
        server.wait()
    return {**told, "start": start, "installed": float(size_of(python.parent.parent / "lib"))}


def figures(options: Options) -> Iterator[Figure]:
    """Measure one after the other, each for half of the time."""
    for kind in SERVERS:
        told = measured(kind, options.secs / 2)
        notes = {"pins": ", ".join(SERVERS[kind]), "secs": options.secs / 2, "failed_pages": told["failed_pages"]}
        slowest = Aim("at most", 1000)
        memory = (told["memory_before"] / MIB, told["memory_half"] / MIB, told["memory_end"] / MIB)
        yield Figure("ui", f"{kind}: a page, median", (told["page_ms_p50"],), "ms", notes=notes)
        yield Figure("ui", f"{kind}: a page, slowest", (told["page_ms_max"],), "ms", slowest)
        yield Figure("ui", f"{kind}: memory at the start", memory[:1], "MiB")
        yield Figure("ui", f"{kind}: memory, first half", memory[1:2], "MiB")
        yield Figure("ui", f"{kind}: memory, second half", memory[2:], "MiB")
        yield Figure("ui", f"{kind}: of a core", (told["cores"],), "cores")
        yield Figure("ui", f"{kind}: an update", (told["update_bytes"],), "bytes")
        yield Figure("ui", f"{kind}: until the first page", (told["start"],), "s")
        yield Figure("ui", f"{kind}: installed", (told["installed"] / MIB,), "MiB")
