"""Archives: unpacks the checkpoints that the repository keeps."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, directory: Path) -> None:
    """Unpack a tar of ours; Python before 3.11.4 (Debian 12 has 3.11.2) knows no filters yet, later ones want one."""
    wanted = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as opened:
        opened.extractall(directory, **wanted)
