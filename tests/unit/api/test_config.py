"""Settings: which are there, what they may be, and how a wrong one is refused."""

import dataclasses
import re
from typing import Any

import pytest

from sparkbolt.api.config import COMPONENT_KEYS, STORM_KEYS, STORM_KEYS_WITHOUT_MEANING, Config
from sparkbolt.errors import ConfigError


def test_defaults_equal_those_of_storm_if_storm_has_the_setting() -> None:
    config = Config()
    assert (config.message_timeout_secs, config.enable_message_timeouts) == (30, True)
    assert (config.max_spout_pending, config.acker_tasks, config.tick_tuple_freq_secs) == (None, None, None)
    assert (config.max_error_report_per_interval, config.error_throttle_interval_secs) == (5, 10)
    assert not config.debug


def test_every_default_is_a_value_that_its_key_accepts() -> None:
    config = Config()
    assert Config.from_mapping(dataclasses.asdict(config)) == config


@pytest.mark.parametrize("storm", sorted(STORM_KEYS))
def test_storms_dotted_name_is_a_second_name_of_the_setting(storm: str) -> None:
    value: Any = True if storm.endswith(("debug", "timeouts")) else 7
    assert getattr(Config.from_mapping({storm: value}), STORM_KEYS[storm]) == value
    assert Config(**{storm: value}) == Config(**{STORM_KEYS[storm]: value})


@pytest.mark.parametrize("storm", sorted(STORM_KEYS_WITHOUT_MEANING))
def test_a_storm_setting_without_meaning_is_refused_with_a_sentence(storm: str) -> None:
    with pytest.raises(ConfigError, match=f"Storm's setting '{storm}' has no meaning here: .{{20}}"):
        Config.from_mapping({storm: 1})


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("mesage_timeout_secs", "message_timeout_secs"),
        ("max_pending", "max_spout_pending"),
        ("topology.message.timeout.sec", "topology.message.timeout.secs"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_known_one(key: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting '{key}': did you mean '{near}'"):
        Config.from_mapping({key: 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("message_timeout_secs", 0),
        ("message_timeout_secs", True),
        ("message_timeout_secs", float("nan")),
        ("max_spout_pending", 1.5),
        ("acker_tasks", 65_536),
        ("tick_tuple_freq_secs", 0),
        ("on_error", "ignore"),
        ("frame_bytes_max", 0),
        ("fuse", "no"),
    ],
)
def test_an_invalid_value_is_refused_with_its_key_and_the_expected_and_actual_value(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^{key}={re.escape(repr(value))}: expected "):
        Config.from_mapping({key: value})


def test_zero_ackers_disable_tracking() -> None:
    assert Config(acker_tasks=0).acker_tasks == 0


def test_settings_of_a_component_override_those_of_the_topology() -> None:
    config = Config(debug=True, max_spout_pending=10)
    own = config.with_component({"topology.max.spout.pending": 3, "tick_tuple_freq_secs": 0.5})
    assert (own.max_spout_pending, own.tick_tuple_freq_secs, own.debug) == (3, 0.5, True)
    assert config.with_component({}) == config


def test_a_component_may_set_only_the_keys_in_component_keys() -> None:
    for field in dataclasses.fields(Config):
        if field.name in COMPONENT_KEYS:
            Config().with_component({field.name: field.default})
        else:
            with pytest.raises(ConfigError, match=f"'{field.name}' belongs to the whole topology"):
                Config().with_component({field.name: field.default})
    with pytest.raises(ConfigError, match=r"'topology.acker.executors' belongs to the whole topology"):
        Config().with_component({"topology.acker.executors": 1})
    with pytest.raises(ConfigError, match="unknown setting 'fuze': did you mean 'fuse'"):
        Config().with_component({"fuze": True})
