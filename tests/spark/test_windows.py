"""Every kind of window on Spark while its driver is killed: each is seen, and none is wrong."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import line_of
from tests.chaos.books import WindowBooks
from tests.chaos.campaign import Campaign

pytestmark = [pytest.mark.spark, pytest.mark.campaign]

KILLS = 3


def test_each_window_is_seen_and_none_is_wrong_when_the_driver_is_killed_at_random_moments() -> None:
    campaign = Campaign(3, KILLS, lambda event: print(line_of(event)), topology="windows", driver_only=True)
    outcome = campaign.run()
    assert not outcome.wrong, f"{outcome.wrong[:10]}; logs and checkpoint are in {campaign.directory}"
    assert outcome.victims == {"driver": KILLS}
    assert outcome.failed == 0, "nothing was given again, so that the counts were compared exactly"
    assert isinstance(campaign.books, WindowBooks)
    assert campaign.books.open_over_a_kill > 100
