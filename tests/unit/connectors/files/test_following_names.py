"""Files of any name and kind that are followed: odd names, pipes, links to nothing."""

from __future__ import annotations

import os

from sparkbolt.connectors.files.file_identity import FileId


def test_names_of_files_survive_any_path() -> None:
    odd = ("/caf\udce9", "/caf%E9", "/\udce9#1-2-0123456789abcdef", "/\udce9\n:@4")
    for path in ("/a#b#1-2-0123456789abcdef", "/with space", "/new\nline", "/ünï", *odd):
        for generation in (1, 2, 17):
            id_ = FileId.of_head(path, 1 << 63, generation - 1, os.urandom(9), generation)
            assert FileId.parse(id_.source) == id_
            assert id_.source.encode().startswith(b"file:///" if "\udce9" in path else path.encode())
