"""A checkpoint's files through Hadoop, as they are on hdfs:// and s3a://; here on file://."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkbolt.errors import CheckpointError
from sparkbolt.spark.checkpoint import Checkpoint, HadoopFiles, LocalFiles
from sparkbolt.spark.checkpoint_lock import is_locked

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", ["local", "hadoop"])
def test_files_are_written_whole_replaced_listed_and_removed(kind: str, spark: Any, tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path)) if kind == "local" else HadoopFiles(spark, tmp_path.as_uri())
    assert files.read("life") is None
    assert files.names("ledger") == files.names("nowhere") == []
    files.write("life", b"0")
    files.write("life", b"1")
    assert files.read("life") == b"1"
    assert files.create("lives/0", b"mine")
    assert not files.create("lives/0", b"yours")
    assert files.read("lives/0") == b"mine"
    data = bytes(range(256)) * 1000
    files.write("ledger/0.entry", data)
    files.write("ledger/1.entry", b"")
    assert (files.read("ledger/0.entry"), files.read("ledger/1.entry")) == (data, b"")
    assert sorted(name for name in files.names("ledger") if not name.startswith(".")) == ["0.entry", "1.entry"]
    files.remove("ledger/0.entry")
    files.remove("ledger/0.entry")
    assert files.read("ledger/0.entry") is None


def test_a_lock_of_a_jvm_is_seen_from_outside_of_it(spark: Any, tmp_path: Path) -> None:
    assert not is_locked(str(tmp_path))
    held = Checkpoint(spark, str(tmp_path))
    assert is_locked(str(tmp_path))
    assert is_locked(str(tmp_path)), "to look takes no lock away"
    held.close()
    assert not is_locked(str(tmp_path))


def test_a_lock_that_cannot_be_opened_is_one_sentence(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()  # as if it belonged to another user, which the superuser would not notice
    with pytest.raises(CheckpointError, match=r"cannot be locked \(.*lock.*\): run as the user to whom it belongs"):
        Checkpoint(spark, str(tmp_path))
