"""A tree's story becomes a trace: ids that follow from the tree, parents, times, attributes, errors."""

from __future__ import annotations

from dataclasses import replace

from sparkbolt.api.causes import Cause, MessageOutcome
from sparkbolt.api.story import Hop, Story
from sparkbolt.api.tree_life import TreeState
from sparkbolt.base.ids import tree_key
from sparkbolt.observe.spans import Span, SpanContext, context_of, spans_of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
KEY = tree_key(1, 321)


def hop(micro_batch_id: int, depth: int, who: str, **more: object) -> Hop:
    component, _, task = who.rstrip("]").partition("[")
    return Hop(KEY, micro_batch_id, 1000 * micro_batch_id, depth, component, int(task), **more)  # type: ignore[arg-type]


SPOUT = hop(3, 0, "orders[0]", values="{'order': 321}", emitted=(("order", 1),))
ITEMS = hop(3, 1, "items[1]", tuples=1, acked=1, source="orders[0]", emitted=(("order", 3),))
CHARGE = hop(4, 2, "charge[0]", tuples=3, acked=2, failed=1, source="items[1]", values="{'price': 'n/a'}")
FAILED = Story(
    KEY,
    "orders",
    0,
    TreeState.FAILED,
    source="orders/3",
    position=321,
    attempt=2,
    started_in=3,
    started_ms=3000,
    ended_in=4,
    ended_ms=4000,
    why="by charge[0] in micro-batch 4: ValueError: could not convert: 'n/a'",
    cause=Cause.EXCEPTION,
    outcome=MessageOutcome.DEAD_LETTER,
    traceback="Traceback (most recent call last):\n  ...\nValueError: could not convert: 'n/a'\n",
    hops=(SPOUT, ITEMS, CHARGE),
)


def parents(spans: list[Span]) -> dict[str, str | None]:
    names = {span.context.span_id: span.name for span in spans}
    return {span.name: names[span.parent.span_id] if span.parent else None for span in spans}


def test_tree_is_the_first_span_and_the_parent_of_each_hop_is_the_hop_that_sent_its_tuple() -> None:
    spans = spans_of("shop", FAILED)
    assert parents(spans) == {
        "orders": None,
        "orders[0]": "orders",
        "items[1]": "orders[0]",
        "charge[0]": "items[1]",
    }
    assert len({span.context.trace_id for span in spans}) == 1
    assert len({span.context.span_id for span in spans}) == 4


def test_a_hop_with_only_one_known_path_is_a_child_of_the_hop_before_it() -> None:
    way = (hop(3, 0, "orders[0]"), hop(3, 1, "items[1]"), hop(3, 2, "charge[0]", failed=1, source="items[1]"))
    assert parents(spans_of("shop", replace(FAILED, hops=way))) == {
        "orders": None,
        "orders[0]": "orders",
        "items[1]": "orders[0]",
        "charge[0]": "items[1]",
    }
    assert parents(spans_of("shop", replace(FAILED, hops=way[2:]))) == {"orders": None, "charge[0]": "orders"}


def test_same_tree_gives_the_same_trace_and_another_tree_another_trace() -> None:
    own = spans_of("shop", FAILED)
    assert spans_of("shop", FAILED) == own
    others = [
        context_of("other", FAILED),
        context_of("shop", replace(FAILED, attempt=3)),
        context_of("shop", replace(FAILED, key=KEY + 1)),
        context_of("shop", replace(FAILED, started_ms=3001)),
    ]
    assert len({own[0].context.trace_id, *(other.trace_id for other in others)}) == 5


def test_the_traceparent_of_the_message_is_the_parent_and_its_trace_is_the_trace() -> None:
    followed = replace(FAILED, hops=(replace(SPOUT, trace_parent=PARENT), ITEMS))
    tree, *hops = spans_of("shop", followed)
    assert tree.parent == SpanContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, is_remote=True)
    assert {span.context.trace_id for span in (tree, *hops)} == {tree.parent.trace_id}
    assert tree.context.span_id == context_of("shop", FAILED).span_id
    not_sampled = replace(SPOUT, trace_parent=PARENT[:-2] + "00")
    assert spans_of("shop", replace(FAILED, hops=(not_sampled,)))[0].parent == replace(tree.parent, is_sampled=False)


def test_times_cover_micro_batches_from_plan_to_promotion() -> None:
    tree, spout, items, charge = spans_of("shop", FAILED, durations_ms={3: 250.0, 4: 500.5})
    ms = 1_000_000
    assert (tree.start_ns, tree.end_ns) == (3000 * ms, 4000 * ms + 500_500_000)
    assert [(span.start_ns, span.end_ns) for span in (spout, items)] == [(3000 * ms, 3250 * ms)] * 2
    assert (charge.start_ns, charge.end_ns) == (4000 * ms, 4000 * ms + 500_500_000)


def test_tree_has_its_outcome_and_the_origin_of_its_message() -> None:
    message = {"messaging.system": "kafka", "messaging.destination.name": "orders", "messaging.kafka.offset": 321}
    tree, *_ = spans_of("shop", FAILED, attributes=message)
    assert tree.is_consumer
    assert tree.attributes == {
        **message,
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "sparkbolt.topology": "shop",
        "sparkbolt.component": "orders",
        "sparkbolt.task": 0,
        "sparkbolt.root": FAILED.root,
        "sparkbolt.attempt": 2,
        "sparkbolt.state": "failed",
        "sparkbolt.outcome": "dead_letter",
        "sparkbolt.cause": "exception",
        "sparkbolt.source": "orders/3",
        "sparkbolt.position": 321,
        "sparkbolt.started_in": 3,
        "sparkbolt.ended_in": 4,
        "error.type": "ValueError",
    }


def test_the_exception_is_an_event_of_the_tree_and_the_hop_that_failed_has_the_error() -> None:
    tree, spout, items, charge = spans_of("shop", FAILED)
    assert tree.exception == {
        "exception.type": "ValueError",
        "exception.message": "could not convert: 'n/a'",
        "exception.stacktrace": FAILED.traceback,
    }
    assert tree.error == charge.error == FAILED.why
    assert spout.error is items.error is None


def test_an_acked_tree_has_no_error() -> None:
    acked = replace(FAILED, state=TreeState.ACKED, why="", cause=None, outcome=None, traceback=None, hops=(SPOUT,))
    tree, spout = spans_of("shop", acked)
    assert (tree.error, tree.exception, tree.is_consumer) == (None, {}, False)
    assert not {"error.type", "sparkbolt.cause", "sparkbolt.outcome"} & tree.attributes.keys()
    assert spout.attributes == {
        "sparkbolt.component": "orders",
        "sparkbolt.task": 0,
        "sparkbolt.micro_batch": 3,
        "sparkbolt.emitted": 1,
    }


def test_values_of_tuples_are_exported_only_on_request() -> None:
    assert not [span for span in spans_of("shop", FAILED) if "sparkbolt.values" in span.attributes]
    found = [span.attributes.get("sparkbolt.values") for span in spans_of("shop", FAILED, values=True)]
    assert found == [None, "{'order': 321}", None, "{'price': 'n/a'}"]
