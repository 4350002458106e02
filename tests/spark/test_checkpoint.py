"""The lock of a checkpoint, held by a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkbolt.errors import CheckpointError
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.checkpoint_lock import is_locked

pytestmark = pytest.mark.spark


def test_a_lock_held_by_a_jvm_is_visible_from_outside(spark: Any, tmp_path: Path) -> None:
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
