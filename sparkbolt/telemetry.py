"""Traces for OpenTelemetry. Its libraries are loaded when they are first used."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from sparkbolt.api.running import Telemetry, TelemetrySink
from sparkbolt.errors import ConfigError

if TYPE_CHECKING:
    from sparkbolt.api.topology import Topology
    from sparkbolt.observe.otel import OpenTelemetry

__all__ = ["OpenTelemetry"]

log = logging.getLogger("sparkbolt")


def __getattr__(name: str) -> Any:
    """Load ``OpenTelemetry`` when it is first used.

    Raises:
        ConfigError: its libraries are not installed.
    """
    if name == "OpenTelemetry":
        try:
            from sparkbolt.observe.otel import OpenTelemetry
        except ImportError as error:
            raise ConfigError(
                f"traces need the packages of OpenTelemetry, which are not installed whole ({error}): "
                "pip install 'sparkbolt[otel]'"
            ) from error

        return OpenTelemetry
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_asked_for() -> bool:
    """Whether the standard variables of the environment ask for traces."""
    named = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    return bool(named or endpoint) and named != "none" and not disabled


def sink_for(topology: Topology, telemetry: Telemetry | None) -> TelemetrySink | None:
    """Return the sink of a topology that starts: of the given telemetry, otherwise by the environment.

    An error in the environment is logged, and the topology starts anyway.

    Raises:
        ConfigError: the given telemetry cannot be used.
    """
    if telemetry is not None:
        return telemetry.build(topology)
    if not is_asked_for():
        return None
    try:
        from sparkbolt.observe.otel import OpenTelemetry

        return OpenTelemetry().build(topology)
    except ImportError as error:
        log.info("the environment asks for traces, which need sparkbolt[otel]: there are none (%s)", error)
    except Exception as error:  # noqa: BLE001  libraries may raise anything about the environment
        log.error("the environment asks for traces, and they cannot be sent: %s; there are none", error)
    return None
