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


def test_a_poll_has_the_same_cost_for_each_kafka_partition() -> None:
    assert_linear(lambda count: calls_of(driver_of(count).poll), 40)


def test_a_start_has_the_same_cost_for_each_kafka_partition() -> None:
    def start(count: int) -> int:
        driver = driver_of(count)
        driver.spout._positions.clear()
        steps = driver.coordinator.spout_steps
        return calls_of(lambda: driver.perform_all(steps.tell_sources([SOURCE], changed=False)))

    assert_linear(start, 40)
