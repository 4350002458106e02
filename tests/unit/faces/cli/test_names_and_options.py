"""The command line's grammar: how topologies are named, what wrong use is told, what the help says."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from sparkbolt import Topology
from sparkbolt.control.intent import SETTINGS
from sparkbolt.control.parameters import duration_secs
from sparkbolt.control.verbs import VERBS
from sparkbolt.faces.cli import main, program
from sparkbolt.faces.cli.locate import BrokenModuleError, load_topology
from sparkbolt.faces.cli.parser import GROUPS, parser

MODULE = """
from sparkbolt import TopologyBuilder
from tests.unit.faces.cli.words import Lines, Split, build
topology = build()
builder = TopologyBuilder("b")
builder.set_spout("lines", Lines())
broken = TopologyBuilder("c")
number = 3
def wanting(argument):
    return topology


def raising():
    return 1 / 0
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "topologies_of_a_test"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "needy_of_a_test.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "several_of_a_test.py").write_text(f"from {name} import build\none, two = build(), build()\n")
    (tmp_path / "none_of_a_test.py").write_text("number = 3\n")
    (tmp_path / "wrong_of_a_test.py").write_text("def f(:\n")
    (tmp_path / "misspelt_of_a_test.py").write_text("from tests.unit.faces.cli.words import misspelt\n\nmisspelt()\n")
    for call in ("run", "start"):
        (tmp_path / f"{call}s_of_a_test.py").write_text(f"from {name} import topology\ntopology.{call}()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


def test_a_duration_is_seconds_minutes_or_hours() -> None:
    assert [duration_secs(text) for text in ("30s", "5m", "1h", "1.5", "2")] == [30, 300, 3600, 1.5, 2]


@pytest.mark.parametrize(
    "reference", ["{}:topology", "{}:builder", "{}:build", "{}:builder.build", "{}.py", "{}.py:build", "./{}.py", "{}:"]
)
def test_a_topology_a_builder_or_a_function_can_be_loaded_as_a_topology(module: str, reference: str) -> None:
    assert isinstance(load_topology(reference.format(module)), Topology)


def test_a_file_elsewhere_is_loaded_by_its_path(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_topology(f"../{module}.py").name == load_topology(f"{tmp_path}/{module}.py:topology").name


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (
            "{}",
            "expected module:attribute, such as word_count:topology, a file, such as word_count.py, or the name of "
            "a topology: did you mean '{}.py'?",
        ),
        ("{}:topolgy", "module '{}' has no attribute 'topolgy': did you mean 'topology'?"),
        ("{}:no_such_attribute", "has no attribute 'no_such_attribute': its topologies are topology"),
        ("topologys_of_a_test.py", "there is no file 'topologys_of_a_test.py' in "),
        ("topologys_of_a_test.py", ": did you mean '{}.py'?"),
        ("several_of_a_test.py", "several topologies: write several_of_a_test.py:one or several_of_a_test.py:two"),
        ("none_of_a_test.py", "none_of_a_test.py has no Topology and no TopologyBuilder"),
        ("./{}:topology", "expected module:attribute"),
        ("topologys_of_a_test:topology", "or on Python's path: did you mean '{}'?"),
        ("{}:number", "is of type int, expected a Topology"),
        ("{}:number", "returns one: its topologies are topology"),
        ("no_such_module_at_all:topology", "there is no module 'no_such_module_at_all'"),
        ("starts_of_a_test:topology", 'put what starts it under `if __name__ == "__main__":`'),
    ],
)
def test_wrong_use_prints_a_sentence_and_exits_with_code_2(
    module: str, reference: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", reference.format(module)]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert said.format(module) in out.err
    assert "Traceback" not in out.err


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("{}:raising", r"ZeroDivisionError: .* \(.*topologies_of_a_test\.py, line \d+\)$"),
        ("{}:wanting", r"wanting cannot be called: TypeError: wanting\(\) missing 1 .* argument: 'argument'$"),
        ("needy_of_a_test:topology", "needs module 'no_such_module_at_all'"),
        ("wrong_of_a_test:topology", "line 1"),
        (
            "misspelt_of_a_test:topology",
            r"did you mean 'fields_grouping'\? \(.*/tests/unit/faces/cli/words\.py, line \d+\)$",
        ),
    ],
)
def test_a_module_that_raises_on_import_is_reported_in_one_sentence_with_exit_code_1(
    module: str, reference: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BrokenModuleError, match=said):
        load_topology(reference.format(module))
    assert main(["run", reference.format(module)]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_mistakes_of_a_topology_are_listed_with_exit_code_1(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{module}:broken"]) == 1
    assert "there is no spout" in capsys.readouterr().out
    assert main(["check", f"{module}:broken", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["mistakes"] == ["there is no spout: a topology needs at least one"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["fly"],
        ["run"],
        ["dlq"],
        ["run", "a:b", "--for", "3x"],
        ["run", "a:b", "--for", "0s"],
        ["run", "a:b", "--conf", "x"],
    ],
)
def test_wrong_arguments_exit_with_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "usage: sparkbolt" in capsys.readouterr().err


ELSEWHERE = ("list", "top", "stats", "tail", "activate", "deactivate", "kill", "restart", "set", "rebalance", "trace")


@pytest.mark.parametrize(
    "command",
    [[], ["run"], ["dlq", "replay"], ["explain"], ["simulate"], ["ui"], *([name] for name in ELSEWHERE)],
)
def test_help_fits_80_columns(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command, "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def test_version_and_help_exit_with_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("sparkbolt ")
    assert main(["--help"]) == 0
    assert "exit codes:" in (out := capsys.readouterr().out)
    assert main([]) == 0
    assert capsys.readouterr().out == out


def test_help_shows_each_command_once_in_its_group_with_an_example_that_is_valid(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main([])
    head = capsys.readouterr().out.partition("\n`sparkbolt COMMAND")[0]
    groups = dict(re.findall(r"^(\w+) .*, for example: (.*)$", head, re.MULTILINE))
    assert list(groups) == ["build", "run", "watch", "operate", "repair"]
    for example in groups.values():
        parser().parse_args(example.split()[1:])
    shown = re.findall(r"^  ([a-z-]+) +\w", head, re.MULTILINE)
    commands = {name.partition(" ")[0] for group in GROUPS for name in group.commands}
    assert sorted(shown) == sorted({*commands, *(verb.name for verb in VERBS.values() if verb.has_command)})


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("set", SETTINGS),
        ("deactivate", ["The topology stays inactive until you activate it, also after a restart."]),
        (
            "errors",
            ["List failed trees, also after the topology has ended. The newest failed"],
        ),
        ("dlq", ["List, show and replay dead letters."]),
    ],
)
def test_help_of_a_command_says_what_it_does(
    command: str, parts: Iterable[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert [part for part in parts if part not in out] == []


def test_a_command_loads_only_its_own_module(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(name: str) -> ModuleType:
        loaded.append(name)
        return import_module(name)

    monkeypatch.setitem(parser.__globals__, "import_module", load)
    monkeypatch.setitem(parser.__globals__, "_verbs", lambda: loaded.append("the verbs"))
    parser(["check", "a:b"]).parse_args(["check", "a:b"])
    assert loaded == ["sparkbolt.faces.cli.check"]


DOCS = Path(__file__).parents[4] / "docs"


def test_every_exit_code_of_a_run_is_in_the_help_and_in_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    codes = {value for name, value in vars(program).items() if name.startswith("EXIT_")}
    assert codes == {0, 1, 2, 3, 4, 130}
    assert main(["--help"]) == 0
    said = capsys.readouterr().out.partition("exit codes:")[2].partition("environment:")[0]
    assert {int(number) for number in re.findall(r"\d+", said)} == codes
    page = (DOCS / "metrics-and-logs.md").read_text(encoding="utf-8")
    table = page.partition("| exit code | mean")[2].partition("\n\n")[0]
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == codes
