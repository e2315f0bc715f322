"""The input schema of an operation: its parameters and its body, as one JSON schema.

Each parameter is an argument, and the body is the argument `body`. A file of a multipart body is an
object with base64 `content` and a `filename`.
"""

from collections.abc import Mapping
from typing import Any, Final

from ..limits import Limits
from .documents import ApiDocuments
from .parser import BODY, ApiBody, ApiOperation
from .schema_bundle import SchemaBundle

BASE64: Final = {"type": "string", "contentEncoding": "base64"}
FILE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "content": {**BASE64, "description": "The bytes of the file, in base64."},
        "filename": {"type": "string", "description": "The name of the file."},
    },
    "required": ["content"],
    "additionalProperties": False,
}


def make_input_schema(
    operation: ApiOperation, documents: ApiDocuments, limits: Limits, hidden: frozenset[str]
) -> dict[str, Any]:
    """Return the schema of an operation's arguments.

    Args:
        operation: The operation.
        documents: The description of the API.
        limits: `schema_depth` and `schema_nodes` limit the schema.
        hidden: The names of arguments that are not inputs, because credentials replace them.

    Raises:
        SchemaError: The schema is too large.
    """
    bundle = SchemaBundle(documents, limits)
    properties: dict[str, Any] = {}
    required = []
    for parameter in operation.parameters:
        if parameter.argument in hidden:
            continue
        schema = bundle.convert(parameter.schema) if parameter.schema.value is not None else {}
        properties[parameter.argument] = _describe(schema or {}, parameter.description)
        required += [parameter.argument] if parameter.required else []
    if operation.body is not None:
        body = _body_schema(bundle, operation.body, documents)
        properties[BODY] = _describe(body, operation.body.description)
        required += [BODY] if operation.body.required else []
    definitions = bundle.definitions()
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }


def _describe(schema: Any, description: str | None) -> Any:
    if description is None or not isinstance(schema, dict):
        return schema
    return {**schema, "description": description}


def _body_schema(bundle: "SchemaBundle", body: ApiBody, documents: ApiDocuments) -> Any:
    if body.kind == "text":
        return {"type": "string", "description": f"Text of the type {body.media_type}."}
    if body.kind == "binary":
        return {**BASE64, "description": f"The bytes ({body.media_type}), in base64."}
    if body.schema.value is None:
        return {} if body.kind == "json" else {"type": "object"}
    schema = bundle.convert(documents.follow(body.schema))
    if body.kind == "multipart" and isinstance(schema, dict):
        properties = schema.setdefault("properties", {})
        for name, is_list in file_fields(body, documents).items():
            found = properties.get(name)
            about = found.get("description") if isinstance(found, dict) else None
            file = {"type": "array", "items": FILE} if is_list else FILE
            properties[name] = _describe(file, about)
    return schema


def file_fields(body: ApiBody, documents: ApiDocuments) -> dict[str, bool]:
    """Return the fields of a multipart body that are files, and whether each is a list of files."""
    fields = {}
    properties = documents.follow(body.schema).get("properties")
    for name in properties.fields:
        schema = documents.follow(properties.get(name))
        is_list = schema.fields.get("type") == "array"
        if is_list:
            schema = documents.follow(schema.get("items"))
        encoding = body.encoding.get(name)
        media = encoding.get("contentType") if isinstance(encoding, Mapping) else None
        if _is_file(schema.fields, media):
            fields[name] = is_list
    return fields


def _is_file(schema: Mapping[str, Any], media: Any) -> bool:
    if schema.get("format") == "binary":
        return True
    if "contentEncoding" in schema or schema.get("type", "string") != "string":
        return False
    media = schema.get("contentMediaType", media)
    return isinstance(media, str) and not media.startswith("text/") and "json" not in media
