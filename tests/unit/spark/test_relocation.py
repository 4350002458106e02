"""A checkpoint that was moved: Spark's files name the place where it is now."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sparkbolt.files.local import LocalFiles
from sparkbolt.spark.relocation import name_places_anew
from tests.archives import unpack

MADE = next(iter(sorted((Path(__file__).parents[2] / "checkpoints").glob("*.tar.gz"))))
METADATA = "spark/state/0/_metadata/v2/0"


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A checkpoint that Spark has made elsewhere."""
    unpack(MADE, tmp_path)
    return tmp_path / "checkpoint"


def name_anew(directory: Path) -> None:
    name_places_anew(LocalFiles(str(directory)), str(directory), f"file://{directory}", "spark")


def schemas(directory: Path) -> list[str]:
    _, _, body = (directory / METADATA).read_text().partition("\n")
    return [path for store in json.loads(body)["stateStoreInfo"] for path in store["stateSchemaFilePaths"]]


def test_each_schema_is_named_where_it_is_and_the_rest_stays(moved: Path) -> None:
    checksum = moved / "spark/state/0/_metadata/v2/.0.crc"
    checksum.write_bytes(b"of what stood there")
    before = json.loads((moved / METADATA).read_text().partition("\n")[2])
    name_anew(moved)
    assert [Path(path.removeprefix("file://")).is_file() for path in schemas(moved)] == [True]
    assert not checksum.exists()
    after = json.loads((moved / METADATA).read_text().partition("\n")[2])
    for body in (before, after):
        del body["stateStoreInfo"][0]["stateSchemaFilePaths"]
    assert after == before


def test_metadata_at_its_original_location_is_not_rewritten_and_a_copy_is(moved: Path, tmp_path: Path) -> None:
    name_anew(moved)
    spark_writes = schemas(moved)[0].replace("file:///", "file:/")
    text = (moved / METADATA).read_text().replace(schemas(moved)[0], spark_writes)
    (moved / METADATA).write_text(text)
    name_anew(moved)
    assert (moved / METADATA).read_text() == text
    copy = tmp_path / "a copy, with spaces"
    shutil.copytree(moved, copy)
    name_anew(copy)
    assert schemas(copy)[0].startswith(f"file://{copy}/spark/state/0/_stateSchema/default/")
