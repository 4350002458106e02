"""Which modules a worker imports again at the start of another topology."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sparkbolt.spark.job_bundle import ModuleFile
from sparkbolt.spark.program_modules import files_of_modules, renew

OLD = ModuleFile("/a/shop.py", 5, 10, "/a")


def loaded(*names: str) -> dict[str, ModuleType]:
    return {name: ModuleType(name) for name in names}


def test_the_files_of_the_program_are_noted_and_installed_ones_are_not(tmp_path: Path) -> None:
    package = tmp_path / "goods"
    package.mkdir()
    files = [tmp_path / "shop.py", package / "__init__.py", package / "fruit.py"]
    modules = loaded("shop", "goods", "goods.fruit", "sparkbolt.api", "pytest")
    for module, file in zip(modules.values(), [*files, files[0], Path(pytest.__file__)], strict=True):
        file.touch()
        module.__file__ = str(file)
    modules["built_in"] = ModuleType("built_in")
    found = files_of_modules(modules)
    assert {name: (file.path, file.root) for name, file in found.items()} == {
        name: (str(file), str(tmp_path)) for name, file in zip(("shop", "goods", "goods.fruit"), files, strict=True)
    }


@pytest.mark.parametrize(
    ("now", "is_changed"),
    [
        (OLD, False),
        (OLD._replace(written_ns=6), True),
        (OLD._replace(size=11), True),
        (OLD._replace(path="/b/shop.py", root="/b"), True),
        (OLD._replace(written_ns=4), False),  # of a topology that was started before, and runs on
    ],
)
def test_all_modules_of_the_program_are_forgotten_if_one_has_changed(
    monkeypatch: pytest.MonkeyPatch, now: ModuleFile, is_changed: bool
) -> None:
    monkeypatch.setattr(sys, "path", ["/a", "/b"])
    modules, known = loaded("shop", "goods", "goods.fruit", "numpy"), {}
    goods = ModuleFile("/a/goods/__init__.py", 1, 1, "/a")
    for file in (OLD, OLD):
        assert renew({"shop": file, "goods": goods}, is_local=True, modules=modules, known=known) == []
    forgotten = renew({"shop": now, "goods": goods}, is_local=True, modules=modules, known=known)
    assert forgotten == (["shop", "goods", "goods.fruit"] if is_changed else [])
    assert list(modules) == (["numpy"] if is_changed else ["shop", "goods", "goods.fruit", "numpy"])
    assert sys.path[0] == now.root
    modules |= loaded("shop", "goods")
    assert renew({"shop": now, "goods": goods}, is_local=True, modules=modules, known=known) == []


def test_a_module_that_another_program_has_is_imported_from_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "b"), *sys.path])
    known: dict[str, ModuleFile] = {}

    def imported(folder: str) -> Any:
        file = tmp_path / folder / "shop_of_two_programs.py"
        file.parent.mkdir()
        file.write_text(f"PROGRAM = {folder!r}")
        status = os.stat(file)
        files = {"shop_of_two_programs": ModuleFile(str(file), status.st_mtime_ns, status.st_size, str(file.parent))}
        renew(files, is_local=True, known=known)
        return __import__("shop_of_two_programs").PROGRAM

    try:
        assert [imported("a"), imported("b")] == ["a", "b"]
    finally:
        sys.modules.pop("shop_of_two_programs", None)
