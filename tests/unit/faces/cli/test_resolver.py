"""What the TOPOLOGY of a command means: a name, a checkpoint or code, for every command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.control.description import DESCRIPTION_FILE, Description
from sparkbolt.control.documents import TopologyState
from sparkbolt.control.home import Home, entry_with
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.driver.transition import recorded
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.operate.operator_access import operator_of
from sparkbolt.faces.cli.resolver import checkpoint_of, entry_of, letters_of, topology_of
from sparkbolt.layout.lane import lay_out
from sparkbolt.sim.engine import LocalEngine
from tests.contract.engines import write_checkpoint
from tests.unit.faces.cli.words import build

CODE = "from tests.unit.faces.cli.words import build\ntopology = build()\n"


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """A folder with the code of topology 'words', its checkpoint ``state``, and a home that notes topologies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("SPARKBOLT_HOME", str(tmp_path / "home"))
    (tmp_path / "shop_of_a_test.py").write_text(CODE)
    write_checkpoint(LocalEngine(build()), tmp_path / "state")
    home = Home()

    def note(name: str = "words", number: int = 1, **fields: Any) -> str:
        id_ = f"{name}-{number}"
        known = {"state": TopologyState.ENDED, "checkpoint": str(tmp_path / "state"), "started_ms": number, **fields}
        home.write(entry_with(id=id_, name=name, **known))
        return id_

    yield note
    for name in [one for one in sys.modules if one.endswith("_of_a_test")]:
        sys.modules.pop(name)


RUN = ["/bin/sparkbolt", "run", "--checkpoint", "state", "shop_of_a_test:topology"]
FORMS = ["words", "words-1", "state", "./state", "shop_of_a_test.py", "shop_of_a_test:topology"]


@pytest.mark.parametrize("text", FORMS)
def test_each_form_names_the_registration_the_checkpoint_and_the_code(
    register: Callable[..., str], text: str, tmp_path: Path
) -> None:
    register(command=RUN)
    assert entry_of(operator_of(None), text)["id"] == "words-1"
    assert checkpoint_of(text) == str(tmp_path / "state")
    assert topology_of(text).name == "words"


@pytest.mark.parametrize(
    "command",
    [
        ("check", "{}"),
        ("graph", "{}"),
        ("errors", "{}"),
        ("explain", "lines@3", "--checkpoint", "{}"),
        ("checkpoint", "verify", "{}"),
        ("dlq", "list", "{}"),
        ("stats", "{}"),
        ("tail", "{}"),
        ("kill", "{}"),
    ],
)
def test_each_command_takes_each_form(
    register: Callable[..., str], command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    register(command=RUN)
    for text in FORMS:
        main([word.format(text) for word in command])
        said = "".join(capsys.readouterr())
        assert said
        wrong = ("no topology ", "no module", "names no", "no directory", "are not letters")
        assert not [part for part in wrong if part in said], said


def test_a_name_is_preferred_to_a_folder_of_the_same_name(register: Callable[..., str], tmp_path: Path) -> None:
    write_checkpoint(LocalEngine(build()), tmp_path / "words")
    register()
    assert checkpoint_of("words") == str(tmp_path / "state")
    assert checkpoint_of("./words") == str(tmp_path / "words")


def test_a_checkpoint_that_is_not_registered_is_found_by_its_folder(register: Callable[..., str]) -> None:
    assert entry_of(operator_of(None), "state")["name"] == "words"
    with pytest.raises(WrongUseError, match=r"the code of topology 'words' is unknown, .*: write module:attribute"):
        topology_of("state")


@pytest.mark.parametrize(
    ("call", "text", "said"),
    [
        (checkpoint_of, "stat", "there is no topology or checkpoint 'stat': .*: did you mean 'state'"),
        (checkpoint_of, "./stat", "there is no directory .*/stat: .*: did you mean './state'"),
        (checkpoint_of, "wrods", "did you mean 'words'"),
        (topology_of, "shop_of_test", "did you mean 'shop_of_a_test.py'"),
        (topology_of, "wrods", "expected module:attribute, .*: did you mean 'words'"),
        (lambda text: entry_of(operator_of(None), text), "wrods", "no topology 'wrods' is registered in .*: did you m"),
        (lambda text: entry_of(operator_of(None), text), "statte", "no topology 'statte' .*; did you mean 'state'"),
        (lambda text: entry_of(operator_of(None), text), "./statte", "not a checkpoint .*; did you mean './state'"),
    ],
)
def test_a_text_that_names_nothing_is_refused_with_the_nearest_name_checkpoint_or_file(
    register: Callable[..., str], call: Callable[[str], Any], text: str, said: str
) -> None:
    register()
    with pytest.raises(WrongUseError, match=said):
        call(text)


def test_a_command_says_why_it_cannot_use_what_was_written(register: Callable[..., str]) -> None:
    register("lines", checkpoint=None)
    register("other", command=["sparkbolt", "run", "shop_of_a_test.py"])
    register("lost", command=["sparkbolt", "run", "no_such_module_of_a_test:topology"])
    with pytest.raises(WrongUseError, match="'lines' was started without --checkpoint, so this command has nothing"):
        checkpoint_of("lines")
    with pytest.raises(WrongUseError, match=r"was started by `sparkbolt run shop_of_a_test.py`, but here this is top"):
        topology_of("other")
    with pytest.raises(WrongUseError, match=r"but there is no module .*; use the directory in which it was started"):
        topology_of("lost")
    with pytest.raises(WrongUseError, match=r"topology 'words' of shop_of_a_test.py is not registered in .*: start it"):
        entry_of(operator_of(None), "shop_of_a_test.py")


def test_dead_letters_of_a_topology_are_found_where_its_spouts_put_them(
    register: Callable[..., str], tmp_path: Path
) -> None:
    register()

    def put(**letters: str) -> None:
        (tmp_path / "state" / DESCRIPTION_FILE).write_bytes(Description("words", letters=letters).dumps())

    assert letters_of("words") == str(tmp_path / "state")
    put(lines="checkpoint:")
    assert letters_of("words") == str(tmp_path / "state")
    put(lines="file:/data/letters.jsonl", more="file:/data/letters.jsonl")
    assert letters_of("words") == letters_of("shop_of_a_test.py") == "file:/data/letters.jsonl"
    put(lines="file:/data/letters.jsonl", more="kafka:host:9092/letters")
    with pytest.raises(WrongUseError, match=r"several places: write file:/data/letters.jsonl or kafka:host:9092/lett"):
        letters_of("words")
    assert letters_of("./state") == "./state", "a place is taken as it is"


def start_once(directory: Path) -> None:
    """Write what a first start of topology 'words' writes beside Spark's files."""
    (directory / "topology").write_bytes(Generations([recorded(Generation(), lay_out(build(), 2))]).dumps())
    (directory / "spark" / "commits").mkdir(parents=True, exist_ok=True)
    (directory / "spark" / "commits" / "0").touch()


RENAMED = """
from sparkbolt import TopologyBuilder
from tests.unit.faces.cli.words import Lines, Split
builder = TopologyBuilder("words")
builder.set_spout("lines", Lines(), parallelism=3)
builder.set_bolt("cut", Split(), parallelism=2).shuffle_grouping("lines")
"""


def test_check_shows_what_a_start_with_a_checkpoint_would_do(
    register: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register()
    start_once(tmp_path / "state")
    assert main(["check", "shop_of_a_test.py", "--checkpoint", "words"]) == 0
    assert capsys.readouterr().out.endswith(f"\ncheckpoint {tmp_path}/state\n  a start continues from it\n")
    (tmp_path / "renamed_of_a_test.py").write_text(RENAMED)
    assert main(["check", "renamed_of_a_test.py", "--checkpoint", "state"]) == 0
    assert capsys.readouterr().out.partition("goes on from it with another shape\n")[2].splitlines() == [
        "  - bolt 'split' goes: it is gone; if 'cut' is its new name, declare that with renamed_from='split'",
        "  - bolt 'cut' begins empty: it is new",
        "  - spout 'lines' goes on: it has 3 tasks and had 1",
        "  what moves or goes needs your decision: sparkbolt run with --apply",
    ]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("format", "99", "has format 99, and this version of Sparkbolt reads format"),
        ("topology", "{", "the file 'topology' is damaged"),
        ("spark-version", "99.0.0", "was continued with Spark 99.0.0, and this is Spark"),
    ],
)
def test_check_shows_that_a_checkpoint_is_of_another_version_or_damaged(
    register: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, content: str, said: str
) -> None:
    start_once(tmp_path / "state")
    (tmp_path / "state" / file).write_text(content)
    assert main(["check", "shop_of_a_test.py", "--checkpoint", "./state"]) == 1
    assert f"  a start is refused: checkpoint {tmp_path}/state" in (out := capsys.readouterr().out)
    assert said in out


def test_check_shows_that_an_empty_checkpoint_begins(
    register: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new").mkdir()
    assert main(["check", "shop_of_a_test.py", "--checkpoint", "new"]) == 0
    assert "a start begins with it, because it is empty" in capsys.readouterr().out
