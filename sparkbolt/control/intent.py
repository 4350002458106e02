"""Intent: the operators' requests that outlive a topology's process.

They are in the file ``control`` of the checkpoint, one JSON object, which is written before a request is answered as
done. Values are checked both when an operator asks and when the file is read; invalid values in the file are skipped.
At most ``TRACES_MAX`` messages are traced; a further one replaces the oldest.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_type_hints

from sparkbolt.api.config import TIMEOUT_SECS_MIN, did_you_mean
from sparkbolt.api.topology import Topology
from sparkbolt.base.codec import decode, encode
from sparkbolt.driver.overrides import Overrides, TraceWish
from sparkbolt.errors import ConfigError
from sparkbolt.layout.lane import policy_of

CONTROL_FILE = "control"
TRACES_MAX = 20
COUNT_MAX = 10**9
TARGET_MS_MAX = 3_600_000
TIMEOUT_SECS_MAX = 366 * 86_400
RESET = "default"
"""The value that undoes a change."""
LOG_LEVELS = ("debug", "info", "warning", "error")
log = logging.getLogger("sparkbolt")


@dataclass(frozen=True)
class Setting:
    """A setting that can be changed while a topology runs."""

    about: str
    """Its meaning, in a sentence."""
    expected: str
    """The valid values, in words."""
    parse: Callable[[str], Any]
    """Returns the value of a text; raises ``ValueError`` if the text is invalid."""
    field: str
    """Its name in ``Config``."""
    of_component: bool = False
    """Whether it can be changed for one component; without one, it is changed for all that have it."""

    def allows(self, value: object) -> bool:
        """Whether it can have this value."""
        try:
            return bool(self.parse("none" if value is None else str(value)) == value)
        except ValueError:
            return False


def _whole(text: str, at_most: int = COUNT_MAX) -> int:
    value = int(text)
    if not 1 <= value <= at_most:
        raise ValueError(text)
    return value


def _whole_or_none(text: str) -> int | None:
    return None if text.lower() in ("none", "0") else _whole(text)


def _secs(text: str) -> float:
    value = float(text)
    if not TIMEOUT_SECS_MIN <= value <= TIMEOUT_SECS_MAX:
        raise ValueError(text)
    return value


def _level(text: str) -> str:
    if text.lower() not in LOG_LEVELS:
        raise ValueError(text)
    return text.lower()


SETTINGS: Mapping[str, Setting] = {
    "log-level": Setting("The level of the log.", f"one of {', '.join(LOG_LEVELS)}", _level, "log_level"),
    "max-spout-pending": Setting(
        "The maximum number of open trees for each task of a spout.",
        "a whole number of at least 1, or none",
        _whole_or_none,
        "max_spout_pending",
        of_component=True,
    ),
    "micro-batch-target": Setting(
        "The target duration of a micro-batch.",
        f"a whole number of milliseconds from 1 to {TARGET_MS_MAX:,} (an hour)",
        lambda text: _whole(text, TARGET_MS_MAX),
        "micro_batch_target_ms",
    ),
    "message-timeout": Setting(
        "The time after which a tree that is not complete fails.",
        f"a number of seconds from {TIMEOUT_SECS_MIN:g} to {TIMEOUT_SECS_MAX:,} (a year)",
        _secs,
        "message_timeout_secs",
    ),
    "max-attempts": Setting(
        "The maximum number of attempts before a message is given up.",
        "a whole number of at least 1",
        _whole,
        "max_attempts",
        of_component=True,
    ),
}
"""By the name that operators use: the settings that can be changed while a topology runs."""


@dataclass(frozen=True)
class Trace:
    """A wish to trace a message, and whose it is."""

    message: str
    component: str | None
    by: str
    since_ms: int


@dataclass(frozen=True)
class Scale:
    """The numbers that a rebalance changes."""

    executors: Mapping[str, int] = field(default_factory=dict)
    """By component: the number of tasks that replaces the declared one."""
    spark_partitions: int | None = None
    """The number of Spark's partitions; None: as many as there is use for."""
    starts: int = 0
    """Of the numbers before a rebalance: how many starts have tried it."""


@dataclass(frozen=True)
class Intent:
    """The operators' requests that are still in force.

    >>> intent = Intent().with_setting("max-spout-pending", "lines", 10)
    >>> Intent.loads(intent.dumps()) == intent
    True
    """

    active: bool = True
    by: str = ""
    """The user who activated or deactivated it last; empty: nobody has."""
    since_ms: int = 0
    """When that was, in milliseconds since the epoch."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By name and component (empty: the whole topology): the values that were set."""
    traces: tuple[Trace, ...] = ()
    """The oldest first."""
    executors: Mapping[str, int] = field(default_factory=dict)
    """By component: the number of tasks that replaces the declared one."""
    spark_partitions: int | None = None
    """The number of Spark's partitions; None: as many as there is use for."""
    before: Scale | None = None
    """The numbers before the last rebalance, until something is committed with the new ones; None: there is no way
    back."""

    def rebalance(self, scale: Scale) -> Intent:
        """A copy with other numbers of tasks and partitions; those of before stay until something is committed."""
        now = Scale(self.executors, self.spark_partitions)
        if scale == now:
            return self
        before = replace(self.before, starts=0) if self.before is not None else now
        changed = replace(self, executors=scale.executors, spark_partitions=scale.spark_partitions)
        return replace(changed, before=None if scale == before else before)

    def taken_back(self) -> Intent:
        """A copy without the last rebalance, if nothing is committed with it."""
        before = self.before
        if before is None:
            return self
        return replace(self, executors=before.executors, spark_partitions=before.spark_partitions, before=None)

    def tried(self) -> Intent:
        """A copy after one more start has tried the last rebalance."""
        before = self.before
        return self if before is None else replace(self, before=replace(before, starts=before.starts + 1))

    def also_called(self, renamed: Mapping[str, str]) -> Intent:
        """A copy that also knows components by the ids that they have now; ``renamed`` is by the id before."""

        def both(values: Mapping[str, Any]) -> dict[str, Any]:
            return {**{new: values[old] for old, new in renamed.items() if old in values}, **values}

        before = None if self.before is None else replace(self.before, executors=both(self.before.executors))
        settings = {key: both(values) for key, values in self.settings.items()}
        return replace(self, executors=both(self.executors), settings=settings, before=before)

    def rebalanced(self, topology: Topology) -> Topology:
        """A topology with the numbers of tasks that operators have set."""
        return topology.rescaled(self.executors) if self.executors else topology

    def with_setting(self, key: str, component: str, value: Any) -> Intent:
        """A copy in which a setting has another value."""
        return replace(self, settings={**self.settings, key: {**self.settings.get(key, {}), component: value}})

    def without_setting(self, key: str, component: str | None) -> Intent:
        """A copy in which a setting of a component is as in ``Config``; None: of all components."""
        own = {name: value for name, value in self.settings.get(key, {}).items() if component not in (None, name)}
        others = {name: values for name, values in self.settings.items() if name != key}
        return replace(self, settings={**others, **({key: own} if own else {})})

    def with_trace(self, trace: Trace) -> tuple[Intent, Trace | None]:
        """A copy that also traces a message, and the wish that made room for it, if one did."""
        kept = [one for one in self.traces if (one.message, one.component) != (trace.message, trace.component)]
        dropped = kept.pop(0) if len(kept) >= TRACES_MAX else None
        return replace(self, traces=(*kept, trace)), dropped

    def without_trace(self, message: str) -> Intent:
        """A copy that does not trace a message."""
        return replace(self, traces=tuple(one for one in self.traces if one.message != message))

    def overrides(self, topology: Topology) -> Overrides:
        """The values that replace the topology's settings; those for components that are gone are left out."""
        return Overrides(
            max_spout_pending=self._by_component("max-spout-pending", pending_components(topology)),
            micro_batch_target_ms=self.settings.get("micro-batch-target", {}).get(""),
            message_timeout_secs=self.settings.get("message-timeout", {}).get(""),
            max_attempts=self._by_component("max-attempts", retrying_components(topology)),
            traces=tuple(TraceWish(one.message, one.component) for one in self.traces),
        )

    def _by_component(self, key: str, components: list[str]) -> dict[str, Any]:
        own = self.settings.get(key, {})
        every = dict.fromkeys(components, own[""]) if "" in own else {}
        return every | {name: value for name, value in own.items() if name in components}

    @property
    def log_level(self) -> str | None:
        """The level of the log; None: as the program has set it."""
        return self.settings.get("log-level", {}).get("")

    def dumps(self) -> bytes:
        """The content of the file ``control``."""
        return json.dumps(encode(self), indent=1).encode() + b"\n"

    @classmethod
    def loads(cls, data: bytes | None, where: str = "the checkpoint") -> Intent:
        """The inverse of ``dumps``; None, or a file that is damaged, gives an intent that changes nothing."""
        found: dict[str, Any] = {}
        try:
            body = json.loads(data or b"{}")
            if not isinstance(body, dict):
                raise ValueError("it is not a JSON object")
            for name, hint in get_type_hints(cls).items():
                if name in body:
                    found[name] = decode(hint, body[name])
        except (ValueError, RecursionError) as error:
            log.error(
                "%s: the file %r cannot be read (%s): the changes of operators do not apply; make them again, or "
                "remove the file",
                where,
                CONTROL_FILE,
                error,
            )
            return cls()
        intent = cls(**found)
        valid = {
            key: {name: value for name, value in values.items() if SETTINGS[key].allows(value)}
            for key, values in intent.settings.items()
            if key in SETTINGS
        }
        settings = {key: values for key, values in valid.items() if values}
        return replace(intent, settings=settings, traces=intent.traces[-TRACES_MAX:])


def pending_components(topology: Topology) -> list[str]:
    """The components to which ``max-spout-pending`` applies: spouts, and bolts that start trees."""
    starters = [spec.id for spec in topology.bolts if getattr(spec.component, "starts_trees", False)]
    return [*(spec.id for spec in topology.spouts), *starters]


def retrying_components(topology: Topology) -> list[str]:
    """The components whose messages are retried by a policy, and not as their spout decides."""
    return [name for name in pending_components(topology) if policy_of(topology.components[name]) is not None]


def checked_setting(topology: Topology, key: str, value: str, component: str | None) -> tuple[str, str, Any]:
    """A stored setting: its name, the component (or an empty text), and the value (``RESET`` undoes it).

    Raises:
        ConfigError: the setting is fixed while the topology runs, the value is invalid, or the component has no
            such setting. The message lists the valid ones.
    """
    name = key.strip().lower().replace("_", "-").removesuffix("-ms").removesuffix("-secs")
    setting = SETTINGS.get(name)
    if setting is None:
        raise ConfigError(
            f"setting {key!r} cannot be changed while the topology runs{did_you_mean(name, SETTINGS)}; those that can "
            f"are {', '.join(SETTINGS)}. "
            "Change the others in the topology's Config, and start it again with the same checkpoint"
        )
    if component is not None and not setting.of_component:
        raise ConfigError(f"setting {name!r} belongs to the whole topology: remove the component {component!r}")
    if setting.of_component:
        own = pending_components(topology) if name == "max-spout-pending" else retrying_components(topology)
        if component is not None and component not in own:
            raise ConfigError(
                f"setting {name!r} does not apply to {component!r}: expected one of {', '.join(own) or 'none here'}"
            )
    if value == RESET:
        return name, component or "", RESET
    try:
        return name, component or "", setting.parse(value.strip())
    except ValueError:
        raise ConfigError(
            f"setting {name!r}: expected {setting.expected}, got {value!r} ({RESET!r} undoes a change)"
        ) from None
