"""How the driver's work for a Kafka spout grows with its kafka_partitions: counted calls, and no broker."""

from __future__ import annotations

from benchmarks.scale_driver import SOURCE, Brokerless, Driver, all_acked
from tests.unit.growth import assert_linear, calls_of


def driver_of(count: int) -> Driver:
    """A driver that has read a message of each kafka_partition."""
    driver = Driver(Brokerless("localhost:1", "orders", group="scale", max_bytes=1 << 36))
    driver.coordinator.rates[SOURCE].budget = 100 * count
    driver.spout.show(count, end=1)
    driver.step(all_acked)
    assert len(driver.ledger.progress[SOURCE]) == 2 * count, "of each a message and a mark"
    return driver


def test_a_poll_costs_each_kafka_partition_the_same() -> None:
    assert_linear(lambda count: calls_of(driver_of(count).poll), 40)


def test_a_start_costs_each_kafka_partition_the_same() -> None:
    def start(count: int) -> int:
        driver = driver_of(count)
        driver.spout._positions.clear()
        return calls_of(lambda: driver.coordinator._tell_spout(SOURCE, changed=False))

    assert_linear(start, 40)


def test_of_a_topic_that_was_made_again_only_the_newest_positions_are_stored() -> None:
    driver = driver_of(1)
    views = driver.ledger.views(SOURCE)
    told: dict[object, int] = {}
    driver.spout._watcher.tell = lambda news, soon=False: told.update({p: s.offset for p, s in news.items()})
    driver.spout.on_sources_changed({"orders/0~1": views["orders/0"]})
    told.clear()
    driver.spout.on_sources_changed({"orders/0": views["orders/0"]})
    assert told == {}
