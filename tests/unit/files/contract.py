"""The contract of ``Files``, for every implementation: subclasses give the fixture ``files``."""

from __future__ import annotations

from typing import Any

import pytest

ODD_NAMES = [
    "a b",
    "ü-ß-日本",
    "100%",
    "per%2Fcent",
    "a+b=c,d",
    "-dash",
    "quote'\"",
    "star*[x]",
    "dots..",
    "hash#1",
    "q?x=1",
]


class FilesContract:
    """What users of files rely on."""

    def test_a_file_is_written_replaced_listed_and_removed(self, files: Any) -> None:
        assert files.read("life") is None
        files.write("life", b"0")
        files.write("life", b"1")
        assert files.read("life") == b"1"
        data = bytes(range(256)) * 1000
        files.write("ledger/0.entry", data)
        files.write("ledger/1.entry", b"")
        assert (files.read("ledger/0.entry"), files.read("ledger/1.entry")) == (data, b"")
        assert sorted(files.names("ledger")) == ["0.entry", "1.entry"]
        files.remove("ledger/0.entry")
        files.remove("ledger/0.entry")
        assert files.read("ledger/0.entry") is None
        assert files.names("ledger") == ["1.entry"]

    def test_missing_folders_have_no_files_and_are_created_by_a_write(self, files: Any) -> None:
        assert files.names("nowhere") == []
        assert files.read("nowhere/0") is None
        files.remove("nowhere/0")
        files.write("repairs/0/spark/metadata", b"a")
        assert files.create("lives/0", b"b")
        assert files.names("repairs") == ["0"]
        assert files.names("repairs/0/spark") == ["metadata"]
        assert sorted(files.names("")) == ["lives", "repairs"]

    def test_a_file_is_created_once(self, files: Any) -> None:
        assert files.create("lives/0", b"mine")
        assert not files.create("lives/0", b"yours")
        assert files.read("lives/0") == b"mine"
        assert files.names("lives") == ["0"]

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_names_may_have_odd_characters(self, files: Any, name: str) -> None:
        files.write(f"commits/{name}", b"a")
        assert files.names("commits") == [name]
        assert files.read(f"commits/{name}") == b"a"
        assert not files.create(f"commits/{name}", b"b")
        files.remove(f"commits/{name}")
        assert files.names("commits") == []
