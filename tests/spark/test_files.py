"""Files of Hadoop, as they are on hdfs:// and s3a://, keep the contract; here on file://."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkbolt.spark.checkpoint import hadoop_files
from tests.unit.files.contract import FilesContract

pytestmark = pytest.mark.spark


class TestHadoop(FilesContract):
    """A checkpoint through Hadoop."""

    @pytest.fixture
    def files(self, spark: Any, tmp_path: Path) -> Any:
        return hadoop_files(spark, (tmp_path / "files").as_uri(), make=False)
