"""`dovetail run --openapi FILE|URL`: serve an HTTP API from its description.

Credentials come from environment variables, so that they show in no list of processes:
`--credential SCHEME=VARIABLE` names the variable, and `${VARIABLE}` in a `--header` is replaced.
"""

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .options import parse_header

if TYPE_CHECKING:
    from ..server.server import Server

OPENAPI_OPTIONS = ("base_url", "credential", "header", "include", "exclude")
"""The options that only `--openapi` uses."""


def add_openapi_arguments(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("serve an HTTP API")
    group.add_argument(
        "--openapi",
        metavar="FILE|URL",
        help="serve the API of this OpenAPI 3 description (JSON or YAML) instead of a Python file",
    )
    group.add_argument(
        "--base-url",
        metavar="URL",
        help="where the paths of the API begin; requests and credentials are sent only there "
        "(default: the server in the description, if it has the same origin)",
    )
    group.add_argument(
        "--credential",
        metavar="SCHEME=VARIABLE",
        type=_parse_credential,
        action="append",
        default=[],
        help="the environment variable that holds the credential for a security scheme of the "
        "API: a key, a token, or user:password; repeatable",
    )
    group.add_argument(
        "--header",
        metavar="'NAME: VALUE'",
        type=parse_header,
        action="append",
        default=[],
        help="send a header with each request to the API; ${VARIABLE} stands for an environment "
        "variable; repeatable",
    )
    for name, what in (("include", "offer only"), ("exclude", "do not offer")):
        group.add_argument(
            f"--{name}",
            metavar="PATTERN",
            action="append",
            default=[],
            help=f"{what} operations that match: 'GET', '/pets/*', 'GET /pets/*', 'tag:pets' or an "
            "operation id; repeatable",
        )


def check_openapi_options(options: Namespace) -> None:
    """Raise ConfigError if options for APIs are used without one."""
    for name in OPENAPI_OPTIONS:
        if getattr(options, name):
            raise ConfigError(f"--{name.replace('_', '-')} requires --openapi")


def make_openapi_server(options: Namespace) -> "Server":
    """Return the server for the command line."""
    from .. import Server
    from ..config.variables import Variables

    if options.file is not None:
        raise ConfigError("Pass a Python file or --openapi, not both")
    return Server.from_openapi(
        options.openapi,
        base_url=options.base_url,
        credentials={scheme: _read_variable(name) for scheme, name in options.credential},
        headers={name: Variables().fill(value, os.environ) for name, value in options.header},
        include=options.include or None,
        exclude=options.exclude,
    )


def _parse_credential(text: str) -> tuple[str, str]:
    scheme, equals, variable = text.partition("=")
    if not equals or not scheme or not variable:
        raise ArgumentTypeError(f"{text!r} is not in the form SCHEME=VARIABLE")
    return scheme, variable


def _read_variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ConfigError(f"The environment variable {name} is not set")
    return value
