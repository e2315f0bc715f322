"""Two tables and a counter."""

from dovetail.jsonrpc.messages import OpenRequests


def test_each_request_gets_an_id_of_its_own() -> None:
    exchange: OpenRequests[str, str] = OpenRequests()
    assert len({exchange.ask("x") for _ in range(100)}) == 100


def test_a_reply_settles_what_was_asked_under_its_id() -> None:
    exchange: OpenRequests[str, str] = OpenRequests()
    first, second = exchange.ask("first"), exchange.ask("second")
    assert exchange.settle(second) == "second"
    assert exchange.settle(first) == "first"
    assert exchange.asked == {}


def test_a_repeated_reply_is_dropped() -> None:
    exchange: OpenRequests[str, str] = OpenRequests()
    id = exchange.ask("once")
    assert exchange.settle(id) == "once"
    assert exchange.settle(id) is None


def test_a_forged_reply_is_dropped_and_disturbs_nothing() -> None:
    exchange: OpenRequests[str, str] = OpenRequests()
    id = exchange.ask("mine")
    for forged in (id + 1 if isinstance(id, int) else 99, str(id), "", -1, None):
        assert exchange.settle(forged) is None
    assert exchange.settle(id) == "mine"


def test_an_id_is_never_used_again_even_after_its_reply() -> None:
    exchange: OpenRequests[str, str] = OpenRequests()
    first = exchange.ask("a")
    exchange.settle(first)
    assert exchange.ask("b") != first


def test_the_two_directions_do_not_share_their_ids() -> None:
    exchange: OpenRequests[str, str] = OpenRequests()
    id = exchange.ask("ours")
    exchange.answering[id] = "theirs"
    assert exchange.settle(id) == "ours"
    assert exchange.answering == {id: "theirs"}
