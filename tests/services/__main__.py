"""``python -m tests.services COMMAND...``: what ``scripts/services`` runs when all is installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.services import make


def say(text: str) -> None:
    print(f"services: {text}", file=sys.stderr, flush=True)


def run(command: list[str], environment: dict[str, str]) -> int:
    """Run the command to its end, also when this process is told to stop: the command is told so too."""
    process = subprocess.Popen(command, env={**os.environ, **environment})
    # Ctrl-C goes to the whole group, so the command has it already; what is sent to this process is passed on.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    return code if code >= 0 else 128 - code


def main(command: list[str]) -> int:
    if not command:
        say("what is to run while the servers do? scripts/services COMMAND...")
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sparkbolt-services-") as directory, ExitStack() as stack:
        servers = make(Path(directory))
        for server in servers.values():
            stack.callback(server.kill)
            server.launch()
        for name, server in servers.items():
            server.wait()
            say(f"{name}={server.address} after {time.monotonic() - began:.1f} s")
        return run(command, {name: server.address for name, server in servers.items()})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
