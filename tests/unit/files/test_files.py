"""Files of each kind keep one contract; those on disks also survive full disks, dead processes and other writers."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from sparkbolt.files import local
from sparkbolt.files.arrow import ArrowFiles
from sparkbolt.files.local import LocalFiles
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.files.shared import LEFTOVER_SECS
from tests.unit.files.contract import FilesContract


def files_at(kind: str, root: str) -> Any:
    """Files of a kind in a directory; other processes make them in the same way."""
    if kind == "arrow":
        return ArrowFiles(fs.LocalFileSystem(), root)
    if kind == "arrow subtree":
        return ArrowFiles(fs.SubTreeFileSystem(str(Path(root).parent), fs.LocalFileSystem()), Path(root).name)
    return LocalFiles(root)


class TestMemory(FilesContract):
    """The files of the simulator."""

    @pytest.fixture
    def files(self) -> MemoryFiles:
        return MemoryFiles()


@pytest.fixture(params=["local", "arrow", "arrow subtree"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "files"


@pytest.fixture
def files(kind: str, root: Path) -> Any:
    return files_at(kind, str(root))


class TestOnDisk(FilesContract):
    """Files in a directory. Hadoop's ``file:`` alone is not replaced atomically: it has a checksum beside each file."""

    @pytest.mark.slow
    def test_a_reader_sees_the_old_content_or_the_new_one(self, files: Any) -> None:
        contents = [bytes([65 + number]) * 50_000 for number in range(8)]
        files.write("life", contents[0])
        seen: list[bytes | None] = []
        ended = threading.Event()

        def read() -> None:
            while not ended.is_set():
                seen.append(files.read("life"))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(40):
                files.write("life", contents[number % len(contents)])
        finally:
            ended.set()
            reader.join()
        assert seen
        assert set(seen) <= set(contents)

    def test_hidden_files_are_not_listed(self, files: Any, root: Path) -> None:
        files.write("ledger/0.entry", b"a")
        (root / "ledger" / ".0.entry.crc").touch()
        (root / "ledger" / local.temporary_name("1.entry")).touch()
        assert files.names("ledger") == list(files.listing("ledger")) == ["0.entry"]

    def test_a_listing_tells_when_a_file_changed(self, files: Any, root: Path) -> None:
        assert files.listing("ledger") == {}
        files.write("ledger/0.entry", b"a")
        files.write("ledger/folder/0.entry", b"a")
        (before,) = files.listing("ledger").values()
        os.utime(root / "ledger" / "0.entry", ns=(0, 0))
        files_before = files.listing("ledger")
        assert files_before == {"0.entry": (0, 1)}
        files.write("ledger/0.entry", b"ab")
        assert files.listing("ledger")["0.entry"].size == 2
        assert files.listing("ledger")["0.entry"].modified_ns >= before.modified_ns

    def test_leftovers_of_dead_processes_are_removed_and_files_being_written_are_not(
        self, files: Any, root: Path
    ) -> None:
        files.write("ledger/0.entry", b"a")
        old, new = (root / "ledger" / local.temporary_name("1.entry") for _ in range(2))
        others = [
            root / "ledger" / name for name in (".0.entry.crc", ".1.7e1f8b0c-1b2c-4d3e-8f90-a1b2c3d4e5f6.TID3.tmp")
        ]
        for path in (old, new, *others):
            path.touch()
        long_ago = time.time() - LEFTOVER_SECS - 60
        for path in (old, *others):
            os.utime(path, (long_ago, long_ago))
        files.remove_leftovers("ledger")
        files.remove_leftovers("nowhere")
        assert sorted((root / "ledger").iterdir()) == sorted([root / "ledger" / "0.entry", new, *others])

    @pytest.mark.slow
    def test_a_write_without_enough_space_changes_nothing(self, kind: str, root: Path) -> None:
        files_at(kind, str(root)).write("ledger/0.entry", b"old")
        limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
        assert in_process(kind, root, f"{limited}\n{REFUSED}") == "refused\n"
        assert [path.name for path in (root / "ledger").iterdir()] == ["0.entry"]
        assert (root / "ledger" / "0.entry").read_bytes() == b"old"

    def test_a_disk_that_is_full_changes_nothing(self, kind: str, root: Path) -> None:
        root.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(root)]
        if subprocess.run(["unshare", "-rm", *mount], capture_output=True).returncode:
            pytest.skip("this process may not mount a file system")
        code = f"""
import subprocess
subprocess.run({mount!r}, check=True)
files.write("ledger/0.entry", b"old")
{REFUSED}
print(files.read("ledger/0.entry"), os.listdir({str(root / "ledger")!r}))
files.write("ledger/1.entry", bytes(40_000))  # what the failed writes took is free again
"""
        assert in_process(kind, root, code, "unshare", "-rm") == "refused\nb'old' ['0.entry']\n"

    def test_a_process_that_is_killed_while_it_writes_leaves_the_old_file(self, kind: str, root: Path) -> None:
        files_at(kind, str(root)).write("ledger/0.entry", b"old")
        code = """
import signal
os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
if hasattr(files, "_system"):
    from types import SimpleNamespace
    system = files._system
    files._system = SimpleNamespace(
        type_name=system.type_name,
        create_dir=system.create_dir,
        open_output_stream=system.open_output_stream,
        move=os.replace,
    )
files.write("ledger/0.entry", b"new")
"""
        assert in_process(kind, root, code, dies=True) == ""
        files = files_at(kind, str(root))
        assert files.read("ledger/0.entry") == b"old"
        assert files.names("ledger") == ["0.entry"]
        files.write("ledger/0.entry", b"newer")
        assert files.read("ledger/0.entry") == b"newer"

    @pytest.mark.slow
    def test_two_processes_that_replace_one_file_never_mix_it(self, kind: str, root: Path) -> None:
        files = files_at(kind, str(root))
        files.write("shared", b"A" * 30_000)
        code = 'for number in range(60): files.write("shared", {letter!r} * (30_000 + number))'
        writers = [process(kind, root, code.format(letter=letter)) for letter in (b"A", b"B")]
        read = 0
        while any(writer.poll() is None for writer in writers) or not read:
            data, read = files.read("shared"), read + 1
            assert len(data) >= 30_000
            assert len(set(data)) == 1, "half of one and half of the other"
        assert [(writer.communicate()[0], writer.returncode) for writer in writers] == [("", 0)] * 2
        assert [path.name for path in root.iterdir()] == ["shared"]


REFUSED = """
for write in (files.write, files.create):
    try:
        write("ledger/0.entry" if write == files.write else "ledger/1.entry", bytes(200_000))
    except OSError as error:
        pass
    else:
        print("it was written")
print("refused")
"""


def process(kind: str, root: Path, code: str, *before: str) -> subprocess.Popen[str]:
    start = f"import os\nfrom tests.unit.files.test_files import files_at\nfiles = files_at({kind!r}, {str(root)!r})\n"
    return subprocess.Popen([*before, sys.executable, "-c", start + code], stdout=subprocess.PIPE, text=True)


def in_process(kind: str, root: Path, code: str, *before: str, dies: bool = False) -> str:
    with process(kind, root, code, *before) as running:
        printed = running.communicate()[0]
    assert (running.returncode != 0) == dies
    return printed


# Files of a local disk: order, durability, modes.


class Calls(list[str]):
    """The calls that change or flush files, in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        for name in ("fsync", "replace", "link"):
            monkeypatch.setattr(os, name, self.noting(name, getattr(os, name)))

    def noting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            first = arguments[0]
            path = Path(os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else first)
            kind = "temporary" if local.final_name(path.name) else path.name
            self.append(f"{name} {kind}")
            return call(*arguments)

        return noted


def test_a_file_is_flushed_then_renamed_then_its_folder_is_flushed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = LocalFiles(str(root))
    files.write("ledger/0.entry", b"a")
    calls = Calls(monkeypatch)
    files.write("ledger/0.entry", b"b")
    assert calls == ["fsync temporary", "replace temporary", "fsync ledger"]


def test_a_new_file_is_flushed_then_linked_then_its_folder_is_flushed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFiles(str(root))
    files.create("lives/0", b"a")
    calls = Calls(monkeypatch)
    assert files.create("lives/1", b"b")
    assert calls == ["fsync temporary", "link temporary", "fsync lives"]


def test_a_new_folder_is_flushed_before_a_file_in_it_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    LocalFiles(str(root)).write("a/b/0", b"a")
    assert calls == [
        f"fsync {root.parent.name}",
        "fsync files",
        "fsync a",
        "fsync temporary",
        "replace temporary",
        "fsync b",
    ]


def test_a_file_that_may_be_lost_is_not_flushed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    files = LocalFiles(str(root))
    files.write("topologies/1.json", b"a", durable=False)
    assert files.create("topologies/2.json", b"b", durable=False)
    assert calls == ["replace temporary", "link temporary"]


def test_a_file_that_another_process_wrote_is_flushed_with_its_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "spark").mkdir(parents=True)
    (root / "spark" / "0").touch()
    calls = Calls(monkeypatch)
    LocalFiles(str(root)).flush("spark/0")
    assert calls == ["fsync 0", "fsync spark"]
    LocalFiles(str(root)).flush("nowhere/0")


def test_a_complete_file_is_renamed_durably_to_its_final_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir()
    (root / "written").write_bytes(b"a")
    calls = Calls(monkeypatch)
    local.publish(str(root / "written"), str(root / "archive"))
    assert calls == ["fsync written", "replace written", "fsync files"]
    assert os.listdir(root) == ["archive"]


def test_appended_lines_are_flushed_and_a_new_file_with_its_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir()
    calls = Calls(monkeypatch)
    local.append_lines(str(root / "letters"), ["one"])
    local.append_lines(str(root / "letters"), ["two", "three"])
    assert calls == ["fsync letters", "fsync files", "fsync letters"]
    assert (root / "letters").read_bytes() == b"one\ntwo\nthree\n"


def test_a_file_system_that_cannot_flush_folders_is_used_anyway(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def of_files_alone(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", of_files_alone)
    files = LocalFiles(str(root))
    files.write("life", b"1")
    assert files.read("life") == b"1"


@pytest.mark.parametrize("call", ["fsync", "replace", "link"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    files = LocalFiles(str(root))
    files.write("ledger/0.entry", b"old")

    def fails(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr(os, call, fails)
    if call == "link" and isinstance(error, OSError):
        assert files.create("ledger/1.entry", b"new"), "a file system without links"
        assert files.read("ledger/1.entry") == b"new"
        assert not files.create("ledger/1.entry", b"newer")
        return
    with pytest.raises(type(error)):
        files.create("ledger/1.entry", b"new") if call == "link" else files.write("ledger/0.entry", b"new")
    assert os.listdir(root / "ledger") == ["0.entry"]
    assert files.read("ledger/0.entry") == b"old"


@pytest.mark.slow
def test_each_file_is_created_by_exactly_one_of_two_processes(root: Path) -> None:
    code = "print(sum(files.create(f'lives/{number}', str(os.getpid()).encode()) for number in range(200)))"
    processes = [process("local", root, code) for _ in range(2)]
    assert sum(int(one.communicate()[0]) for one in processes) == 200
    assert len(os.listdir(root / "lives")) == 200


def test_a_removed_directory_that_must_stay_removed_is_not_recreated(root: Path) -> None:
    root.mkdir()
    files = LocalFiles(str(root), keeps_root=False)
    root.rmdir()
    for write in (files.write, files.create):
        with pytest.raises(FileNotFoundError):
            write("lives/0", b"a")
    assert not root.exists()
