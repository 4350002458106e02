"""Which modules travel to a cluster, and in what archive."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import sparkbolt
from sparkbolt.errors import EngineError
from sparkbolt.spark import code_shipping
from sparkbolt.spark import session as spark_session
from sparkbolt.spark.session import await_executors, check_reachable


def module(name: str, file: Path | None = None, folders: list[Path] | None = None) -> ModuleType:
    made = ModuleType(name)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {name}\n")
        made.__file__ = str(file)
    if folders is not None:
        made.__path__ = [str(folder) for folder in folders]
    return made


def modules(*made: ModuleType) -> dict[str, ModuleType | None]:
    return {module.__name__: module for module in made}


def test_modules_and_packages_from_source_are_sent_and_installed_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "spread").mkdir()
    loaded = modules(
        module("single", tmp_path / "single.py"),
        module("package", tmp_path / "package" / "__init__.py"),
        module("package.inner", tmp_path / "package" / "inner.py"),
        module("spread", None, [tmp_path / "spread", tmp_path / "gone"]),
        module("installed", tmp_path / "lib" / "installed.py"),
        module("elsewhere", tmp_path / "venv" / "site-packages" / "elsewhere.py"),
        module("zipped", tmp_path / "a.zip"),
        module("__main__", tmp_path / "program.py"),
        module("pyspark", tmp_path / "pyspark" / "__init__.py"),
        sys,
    )
    loaded["zipped"].__file__ = str(tmp_path / "a.zip" / "zipped.py")  # type: ignore[union-attr]
    loaded["none"] = None
    found = code_shipping.loaded_sources(loaded, [str(tmp_path / "lib")])
    assert found == [
        ("package", tmp_path / "package"),
        ("single.py", tmp_path / "single.py"),
        ("spread", tmp_path / "spread"),
    ]


def test_an_archive_can_be_imported_from_and_is_named_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package_for_archive"
    module("package_for_archive", package / "__init__.py")
    (package / "inner").mkdir()
    (package / "inner" / "value.py").write_text("VALUE = 17\n")
    for left_out in ("__pycache__/value.pyc", ".git/config", "inner/fast.so", "inner/.hidden"):
        module(left_out, package / left_out)
    named = [(package.name, package)]

    first = code_shipping.archive("sources", named, str(tmp_path))
    assert zipfile.ZipFile(first).namelist() == [
        "package_for_archive/",
        "package_for_archive/inner/",
        "package_for_archive/__init__.py",
        "package_for_archive/inner/value.py",
    ]
    assert code_shipping.archive("sources", named, str(tmp_path)) == first
    monkeypatch.syspath_prepend(first)
    assert importlib.import_module("package_for_archive.inner.value").VALUE == 17
    (package / "inner" / "value.py").write_text("VALUE = 18\n")
    assert code_shipping.archive("sources", named, str(tmp_path)) != first


def test_a_folder_with_much_data_is_not_sent_and_a_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module("large", tmp_path / "large" / "__init__.py")
    (tmp_path / "large" / "data").write_bytes(bytes(3 << 20))
    module("small", tmp_path / "small.py")
    small = ("small.py", tmp_path / "small.py")
    assert code_shipping.sendable([("large", tmp_path / "large"), small], bytes_max=2 << 20) == [small]
    assert "large" in caplog.text
    assert "is not sent to the executors, because it has 3 MB" in caplog.text


class FakeContext:
    """As SparkContext, which puts what is added at the head of this process's own path, too."""

    def __init__(self, application: str) -> None:
        self.applicationId = application
        self.added: list[str] = []

    def addPyFile(self, path: str) -> None:  # noqa: N802  Spark's name
        self.added.append(path)
        sys.path.insert(1, path)


def test_named_files_are_sent_once_and_do_not_change_the_path(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__init__.py").write_text("")
    context, before = FakeContext("one"), list(sys.path)
    named = [str(tmp_path / "a.py"), str(tmp_path / "folder"), "hdfs://host/b.zip"]
    for _ in range(2):
        code_shipping.send(context, map(code_shipping.given_file, named), cluster=False)
    file, folder, url = context.added
    assert url == named[2]
    assert zipfile.ZipFile(file).namelist() == ["a.py"]
    assert zipfile.ZipFile(folder).namelist() == ["folder/", "folder/__init__.py"]
    assert sys.path == before


def test_a_named_file_that_has_changed_is_sent_again_or_refused(tmp_path: Path) -> None:
    module, egg, context = tmp_path / "a.py", tmp_path / "b.egg", FakeContext("two")
    for number in (1, 2):
        module.write_text(f"VERSION = {number}")
        code_shipping.send(context, [code_shipping.given_file(str(module))], cluster=False)
    sent = [zipfile.ZipFile(path).read("a.py") for path in context.added]
    assert sent == [b"VERSION = 1", b"VERSION = 2"]
    egg.write_bytes(b"old")
    code_shipping.add(context, str(egg))
    egg.write_bytes(b"new")
    with pytest.raises(EngineError, match=r"b\.egg, which has changed since .* give it another name"):
        code_shipping.add(context, str(egg))


def test_sparkbolt_itself_is_sent_whole() -> None:
    names = zipfile.ZipFile(code_shipping.own_archive()).namelist()
    folder = Path(sparkbolt.__path__[0])
    assert {f"sparkbolt/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*.py")} <= set(names)


def session_on(master: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master))


@pytest.mark.parametrize("checkpoint", [None, "state", "/a/state"])
def test_a_checkpoint_that_executors_do_not_reach_is_refused_on_a_cluster(checkpoint: str | None) -> None:
    with pytest.raises(EngineError, match=r"the topology runs on the cluster spark://host:7077: give checkpoint="):
        check_reachable(session_on("spark://host:7077"), checkpoint)
    check_reachable(session_on("local[2,4]"), checkpoint)


def cluster_with(executors: list[int], cores: int = 2, **settings: str) -> Any:
    """A session on a cluster that tells these numbers of executors, one after the other, then the last for ever."""
    told = iter(executors)
    last = [0]

    def size() -> int:
        last[0] = next(told, last[0])
        return last[0] + 1  # Spark counts the driver, too

    scala = SimpleNamespace(getExecutorMemoryStatus=lambda: SimpleNamespace(size=size))
    context = SimpleNamespace(
        master="spark://host:7077",
        defaultParallelism=cores,
        getConf=lambda: SimpleNamespace(get=lambda key, default: settings.get(key.rsplit(".", 1)[1], default)),
        _jsc=SimpleNamespace(sc=lambda: scala),
    )
    return SimpleNamespace(sparkContext=context, told=told)


def test_a_new_topology_waits_for_the_executors_that_a_cluster_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    few = cluster_with([0, 0, 1], cores=8, max="8")
    await_executors(few, timeout_secs=60)
    assert list(few.told) == [], "it went on before there was an executor"
    monkeypatch.setattr(spark_session, "EXECUTORS_STEADY_SECS", 0.0)
    steady = cluster_with([0, 1, 2])
    await_executors(steady, timeout_secs=60)
    assert list(steady.told) == [2], "no further one came for zero seconds"
