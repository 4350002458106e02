"""``sparkbolt new``: makes the directory of a project, with a topology that runs and a test that passes."""

from __future__ import annotations

import keyword
import os
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from string import Template

from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli.program import EXIT_FINISHED

TOPOLOGY = Template('''\
"""Topology $name: adds up the amounts of the orders of each customer."""

from collections import Counter
from pathlib import Path

from sparkbolt import BasicBolt, TopologyBuilder, bolt
from sparkbolt.bolts import PrintBolt
from sparkbolt.spouts import JsonLinesSpout

ORDERS = Path(__file__).with_name("orders.jsonl")


@bolt(outputs=["customer", "amount"])
def check(tup):
    yield {"customer": tup.customer, "amount": int(tup.amount)}  # an exception fails this order only


class Total(BasicBolt):
    outputs = ["customer", "total"]

    def prepare(self, context):
        self.totals = Counter()  # an attribute is durable: with a checkpoint it outlives a kill -9

    def execute(self, tup, collector):
        self.totals[tup.customer] += tup.amount
        collector.emit([tup.customer, self.totals[tup.customer]])


builder = TopologyBuilder("$name")
builder.set_spout("orders", JsonLinesSpout(ORDERS, outputs=["id", "customer", "amount"]))
builder.set_bolt("check", check).shuffle_grouping("orders")
builder.set_bolt("total", Total(), parallelism=2).fields_grouping("check", ["customer"])
builder.set_bolt("print", PrintBolt()).shuffle_grouping("total")
topology = builder.build()

if __name__ == "__main__":
    topology.run()
''')
TESTS = Template('''\
"""Tests of topology $name, without Spark and Java."""

from sparkbolt.testing import TopologyTestDriver

from $module import topology


def test_the_amounts_of_each_customer_are_added_up():
    with TopologyTestDriver(topology) as driver:
        driver.feed("orders", {"id": 1, "customer": "ann", "amount": 10}, message_id=1)
        driver.feed("orders", {"id": 2, "customer": "ben", "amount": 5}, message_id=2)
        driver.feed("orders", {"id": 3, "customer": "ann", "amount": 7}, message_id=3)
        driver.run_until_idle()
        assert sorted(driver.emitted("total")) == [["ann", 10], ["ann", 17], ["ben", 5]]
        assert sorted(driver.acked("orders")) == [1, 2, 3]


def test_an_order_without_an_amount_fails_alone():
    with TopologyTestDriver(topology) as driver:
        driver.feed("orders", {"id": 1, "customer": "ann", "amount": "n/a"}, message_id=1)
        driver.feed("orders", {"id": 2, "customer": "ben", "amount": 5}, message_id=2)
        driver.run_until_idle()
        [failure] = driver.failed("orders")
        assert failure.message_id == 1
        assert driver.acked("orders") == [2]
''')
ORDERS = """\
{"id": 1, "customer": "ann", "amount": 10}
{"id": 2, "customer": "ben", "amount": 5}
{"id": 3, "customer": "ann", "amount": 7}
{"id": 4, "customer": "cleo", "amount": 12}
{"id": 5, "customer": "ben", "amount": 30}
"""
PROJECT = Template("""\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$distribution"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["sparkbolt"]

[project.optional-dependencies]
test = ["pytest"]

[tool.setuptools]
py-modules = ["$module"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
""")
README = Template("""\
# $name

A topology for [Sparkbolt](https://github.com/sparkbolt/sparkbolt): it adds up the amounts of the orders of each
customer.

| file | content |
| --- | --- |
| `$module.py` | the topology |
| `orders.jsonl` | its input |
| `tests/test_$module.py` | its tests, which need no Spark |

```sh
pip install pytest && python -m pytest
sparkbolt check $module.py                        # shows the layout, and mistakes, without Spark
sparkbolt run $module.py --checkpoint state       # runs it on local Spark, and ends by itself
```

The next run goes on after the last order: append orders to `orders.jsonl`, and run it again. An order that cannot be
processed, such as one with the amount `"n/a"`, is retried for about four minutes, and then becomes a dead letter:

```sh
sparkbolt dlq list state
```

With `follow=True` in its `JsonLinesSpout` the topology waits for further orders. `sparkbolt run --reload` then begins
again from the checkpoint when you save the code, and `sparkbolt run --ui` shows the topology in a browser.
""")
IGNORED = "state/\n__pycache__/\n.pytest_cache/\n.venv/\n"


def new(directory: str, *, name: str | None = None) -> int:
    """Make a project: a topology that runs, its tests and its input.

    Args:
        directory: the directory to make; it must be empty if it exists.
        name: the name of the topology (default: that of the directory).

    Raises:
        WrongUseError: the directory is not empty, or cannot be written, or the name is not possible.
    """
    target = Path(directory)
    name = Path(os.path.abspath(directory)).name if name is None else name
    module = _module_of(name)
    contents = {
        "README.md": README,
        "pyproject.toml": PROJECT,
        f"{module}.py": TOPOLOGY,
        "orders.jsonl": ORDERS,
        f"tests/test_{module}.py": TESTS,
        ".gitignore": IGNORED,
    }
    distribution = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise WrongUseError(f"{directory} is not empty: name a new directory")
        for path, content in contents.items():
            filled = content
            if isinstance(content, Template):
                filled = content.substitute(name=name, module=module, distribution=distribution)
            place = target / path
            place.parent.mkdir(exist_ok=True)
            place.write_text(str(filled), encoding="utf-8")
    except OSError as error:
        raise WrongUseError(f"{error.filename or directory} cannot be written: {error.strerror}") from None
    steps = {
        f"cd {directory}": "",
        "python -m pytest": "tests it without Spark",
        f"sparkbolt run {module}.py --checkpoint state": "runs it on local Spark, until its input ends",
    }
    width = max(map(len, steps)) + 2
    print(f"made topology {name!r} in {directory}: {', '.join(contents)}", "next:", sep="\n")
    print(*(f"  {step:<{width}}{about}".rstrip() for step, about in steps.items()), sep="\n")
    return EXIT_FINISHED


def _module_of(name: str) -> str:
    """The name of the module of a topology.

    >>> _module_of("word-count")
    'word_count'

    Raises:
        WrongUseError: the topology cannot have this name, or its module would hide another one.
    """
    if not re.fullmatch(r"[A-Za-z][\w -]*", name, re.ASCII):
        raise WrongUseError(
            f"{name!r} cannot be the name of a project: expected a letter, and then letters, digits, '-' or '_'; "
            "name it with --name"
        )
    module = re.sub(r"\W+", "_", name).lower().strip("_")
    taken = {*sys.stdlib_module_names, *packages_distributions(), "sparkbolt", "tests"}
    if keyword.iskeyword(module) or module in taken:
        raise WrongUseError(f"Python has a module or a word {module!r} already: name the project with --name")
    return module
