"""`/health`: anyone gets the status; what else a service says is for those who may read the
metrics."""

from typing import Any

import pytest

from dovetail import Server
from dovetail.auth import ApiKeys
from dovetail.ports import Principal
from tests.transports.http.raw import hosted

DETAILED = {"status": "degraded", "upstreams": {"github": "exited with status 1"}}
STATUS = {"status": "degraded"}
KEYS = {
    "ops-key-0123456789": Principal("prometheus", scopes=("metrics",)),
    "ada-key-0123456789": Principal("ada"),
}
NOBODY: dict[str, str | None] = {}
WRONG, ADA, OPS = ({"X-Api-Key": f"{who}-key-0123456789"} for who in ("mallory", "ada", "ops"))


class Detailed(Server):
    def health(self) -> dict[str, Any]:
        return DETAILED


async def health(site: Any, headers: dict[str, str | None], method: str = "GET") -> Any:
    answer = await site.send(method, headers, path="/health")
    assert answer.status == 200
    assert "www-authenticate" not in answer.headers
    return await answer.json()


@pytest.mark.parametrize("options", [{}, {"metrics_auth": False}, {"metrics_auth": None}])
async def test_without_a_guard_anyone_reads_the_details(options: Any) -> None:
    async with hosted(Detailed("shop"), **options) as site:
        assert await health(site, NOBODY) == DETAILED


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ("metrics", (STATUS, STATUS, STATUS, DETAILED)),
        ("other", (STATUS, STATUS, STATUS, STATUS)),
        (None, (STATUS, STATUS, STATUS, STATUS)),
        (False, (DETAILED, DETAILED, DETAILED, DETAILED)),
    ],
)
async def test_behind_a_guard_the_details_are_for_those_who_may_read_the_metrics(
    who: Any, expected: tuple[Any, ...]
) -> None:
    async with hosted(Detailed("shop", auth=ApiKeys(KEYS)), metrics_auth=who) as site:
        answers = [await health(site, headers) for headers in (NOBODY, WRONG, ADA, OPS)]
    assert tuple(answers) == expected


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
async def test_a_web_page_elsewhere_does_not_read_the_details(headers: Any) -> None:
    async with hosted(Detailed("shop")) as site:
        assert await health(site, headers) == STATUS


async def test_a_scope_that_nobody_checks_admits_nobody() -> None:
    async with hosted(Detailed("shop"), metrics_auth="metrics") as site:
        assert await health(site, NOBODY) == STATUS


async def test_a_server_says_that_it_is_there_and_a_head_request_has_no_body() -> None:
    async with hosted(Server("shop", auth=ApiKeys(KEYS))) as site:
        answer = await site.send("GET", NOBODY, path="/health")
        assert await answer.body() == b'{"status":"ok"}'
        answer = await site.send("HEAD", NOBODY, path="/health")
        assert (answer.status, answer.headers["content-length"]) == (200, "15")
