"""Decode and encode pydantic types with pydantic.

Values always pass through JSON, even if they are decoded already, because pydantic applies
different rules to Python values. Its messages are kept; only the path is rewritten in our notation.
"""

from typing import Any

from msgspec import Raw

from .codec import Unencodable, describe_value, encode
from .json_schema import Defs, Schema


class PydanticEngine:
    """Decodes with pydantic. To msgspec the type is `Raw`, so the bytes arrive here untouched."""

    native = Raw

    def __init__(self, hint: Any) -> None:
        from pydantic import TypeAdapter, ValidationError

        self.failure: type[Exception] = ValidationError
        self.adapter: Any = TypeAdapter(hint)
        self.schema = self._schema("validation")
        self.output_schema = self._schema("serialization")

    def _schema(self, mode: str) -> tuple[Schema, Defs]:
        schema = self.adapter.json_schema(mode=mode)
        return schema, schema.pop("$defs", {})

    def decode(self, data: bytes | Raw) -> Any:
        """Decode JSON bytes."""
        return self.adapter.validate_json(bytes(data))

    def convert(self, value: Any, strict: bool = True) -> Any:
        """Convert a value that JSON decoded to."""
        return self.adapter.validate_json(encode(value))

    def encode(self, value: Any) -> bytes:
        """Encode a value as JSON."""
        try:
            return bytes(self.adapter.dump_json(value, by_alias=True, warnings=False))
        except (ValueError, TypeError, RecursionError) as error:
            raise Unencodable(
                f"{type(value).__qualname__} cannot be written as JSON: {error}"
            ) from error

    def explain(self, error: Any, value: Any) -> list[tuple[str, str]]:
        """Return the problems that pydantic found, in its own words."""
        problems = []
        for row in error.errors():
            path, here, missing = "", value, row["type"] == "missing"
            for step in row["loc"][:-1] if missing else row["loc"]:
                # Steps that are not in the value name the union member that was tried.
                if isinstance(here, list) and isinstance(step, int):
                    path, here = f"{path}[{step}]", here[step]
                elif isinstance(here, dict) and step in here:
                    path, here = f"{path}.{step}", here[step]
            text = row["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
            should = text.removeprefix("Input should ")
            if missing:
                problems.append((f"{path}.{row['loc'][-1]}", "is missing"))
            elif should != text:
                problems.append((path, f"must {should}, got {describe_value(row['input'])}"))
            else:
                problems.append((path, f"is not valid: {text}"))
        return problems
