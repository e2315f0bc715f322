"""`dovetail run --openapi`."""

import json
import sys
from pathlib import Path

from dovetail import Client
from tests.cli.conftest import dovetail, environment

from .stage import PETSTORE, petstore
from .stub import ApiStub, serving


def served(*words: str) -> list[str]:
    return [sys.executable, "-m", "dovetail", "run", *words]


async def test_an_api_is_served_on_stdio_with_credentials_from_the_environment() -> None:
    stub = ApiStub(petstore())
    async with serving(stub.handle) as origin:
        words = served(
            *("--openapi", str(PETSTORE), "--base-url", f"{origin}/"),
            *("--credential", "key=PETS_KEY", "--header", "X-From: ${PETS_FROM:-nowhere}"),
            *("--include", "tag:pets", "--exclude", "DELETE"),
        )
        env = {**environment(), "PETS_KEY": "s3cret"}
        async with Client(words, env=env) as client:
            names = [tool.name for tool in await client.list_tools()]
            assert names == ["listPets", "createPet", "getPet"]
            await client.call_tool("getPet", {"id": "7"})
    assert stub.received[0].raw_path == "/pets/7"
    assert stub.received[0].headers["X-Api-Key"] == "s3cret"
    assert stub.received[0].headers["X-From"] == "nowhere"


def test_mistakes_are_reported_in_one_line(tmp_path: Path) -> None:
    swagger = tmp_path / "swagger.json"
    swagger.write_text(json.dumps({"swagger": "2.0"}))
    for words, problem in (
        (["--openapi", str(PETSTORE)], "--base-url"),
        (["--openapi", str(swagger)], "Convert it to OpenAPI 3"),
        (["--openapi", str(tmp_path / "none.json")], "No such file"),
        (
            ["--openapi", str(PETSTORE), "--base-url", "http://a", "--credential", "key=NO_SUCH"],
            "NO_SUCH is not set",
        ),
    ):
        done = dovetail("run", *words)
        assert (done.code, done.out) == (2, "")
        assert problem in done.failure
