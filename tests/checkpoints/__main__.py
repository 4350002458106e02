"""Makes the checkpoint of this format: ``python -m tests.checkpoints FILE.tar.gz`` runs the topology to its middle."""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from tests.checkpoints.topology import FIRST, made


def main(target: str) -> None:
    """Run until one message waits for its next attempt and all others are acked, held (three) or given up (one)."""
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = Path(directory, "checkpoint")
        running = made(directory, FIRST).start(checkpoint=str(checkpoint), master="local[2]")
        spout = running.metrics().of("numbers")
        while (spout.acked, spout.waiting) != (FIRST - 5, 1):
            if running.failure is not None:
                raise RuntimeError(running.failure)
            running.await_finished(0.2)
            spout = running.metrics().of("numbers")
        running.stop(drain=False)
        with tarfile.open(target, "w:gz") as archive:
            for path in sorted(Path(directory).iterdir()):
                archive.add(path, path.name, filter=_without_owner)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if member.name.endswith((".crc", "lock")):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(sys.argv[1])
