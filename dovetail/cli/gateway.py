"""`dovetail gateway FILE`: serve all servers of an `mcp.json` file as one.

`--check` starts every server once, prints what it offers and what the policy says about it, and
exits. SIGHUP, and with `--watch` a change to a file, reload the configuration.
"""

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from .backend import use_backend_options
from .options import CONFIG_SUFFIXES, parse_target
from .output import AlreadyPrinted, bold, dim, print_error, print_json, print_line, print_table
from .run import add_network_arguments, read_network_settings

if TYPE_CHECKING:
    from ..gateway.gateway import Gateway
    from ..gateway.upstream import UpstreamServer

MAX_STDERR_LINES = 20
COUNTED = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "templates": "template",
    "skills": "skill",
}


class ServersFailed(AlreadyPrinted):
    """Some servers could not be started; the state of all was printed."""


def add_gateway_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="FILE",
        help="an mcp.json file; or a script, a URL or a command, which is then served under its "
        "own names",
    )
    add_network_arguments(parser)
    parser.add_argument("--policy", metavar="FILE", help="a TOML file that says who may do what")
    parser.add_argument(
        "--store",
        metavar="FILE",
        help="where consent and approved tools are stored (default: "
        "$XDG_STATE_HOME/dovetail/consent.db)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="start every server once, print what it offers and what the policy allows, and exit",
    )
    parser.add_argument(
        "--watch", action="store_true", help="reload the files when they change (also: SIGHUP)"
    )


def run_gateway(options: Namespace) -> None:
    """Serve the gateway, or check its servers."""
    import logging

    from ..gateway.gateway import Gateway
    from .request_log import log_requests, print_log

    level = logging.ERROR if options.check else logging.WARNING
    print_log(logging.INFO if options.verbose else level, as_json=options.json)
    is_file = options.source.lower().endswith(CONFIG_SUFFIXES)
    if options.watch and not is_file:
        raise ConfigError(f"--watch requires a configuration file, not {options.source}")
    settings = {} if options.check else read_network_settings(options, "gateway")
    chosen = {"store": options.store} if options.store is not None else {}
    gateway = Gateway(_parse_source(options, is_file), policy=options.policy, **chosen)
    use_backend_options(gateway, options)
    if options.check:
        import asyncio

        asyncio.run(_check(gateway, options))
        return
    if is_file:
        files = [options.source, *([] if options.policy is None else [options.policy])]
        gateway.reload_on_signal(watch=files if options.watch else ())
        from ..logs import get_logger

        get_logger("gateway.reload").setLevel(logging.INFO)
    if options.verbose:
        log_requests(gateway)
    sys.argv = ["dovetail", "gateway", options.source]  # stdio at a terminal says how to try it
    gateway.run(options.transport, **settings)


def _parse_source(options: Namespace, is_file: bool) -> str | list[str]:
    if is_file:
        return str(options.source)
    return parse_target(Namespace(target=options.source, server=None, header=[], cwd=None))


# --check


async def _check(gateway: "Gateway", options: Namespace) -> None:
    import asyncio

    policy, upstreams = gateway.access.policy, gateway.upstreams
    servers = list(upstreams.servers.values())
    if not servers:
        raise ConfigError(f"{options.source} lists no servers")
    try:
        await asyncio.gather(*(server.start() for server in servers), return_exceptions=True)
        found = {server.name: _describe(gateway, server) for server in servers}
    finally:
        await upstreams.close()
    warnings = _find_warnings(found)
    if policy is not None:
        listed = [one for about in found.values() for kind in COUNTED for one in about[kind]]
        own_names = {one["name"]: one["upstreamName"] for one in listed if one["name"] is not None}
        warnings += policy.find_unused(found, own_names)
        if policy.depends_on_caller:
            warnings.append(
                "some rules depend on the caller. The effects shown are those for a caller without "
                "authentication"
            )
    if options.json:
        print_json({"servers": found, "warnings": warnings})
    else:
        for name, one in found.items():
            _print_server(name, one)
        for warning in warnings:
            print_error(f"dovetail: warning: {warning}")
    failed = [name for name, one in found.items() if one["state"] not in ("started", "refused")]
    if failed:
        raise ServersFailed(f"{', '.join(failed)} could not be started")


def _describe(gateway: "Gateway", server: "UpstreamServer") -> dict[str, Any]:
    """Return what is known about a server, and the policy's effect on all that it lists."""
    from ..gateway.access.access import use_of
    from ..gateway.catalog import LIST_KINDS

    names = gateway.upstreams.names
    about: dict[str, Any] = {"state": server.state, "revision": server.revision}
    if server.error is not None:
        about["error"] = server.error
    for kind in LIST_KINDS:
        about[kind] = listed = []
        for name in () if server.is_unread else server.catalog.items(kind):
            decision = gateway.access.check(server, use_of(kind), name)
            effect, rule = decision.effect, decision.rule
            if effect == "ask" and not gateway.access.can_ask:
                effect, rule = "deny", f"{rule}, but nobody can be asked"
            shown = names.to_caller(kind, server.name, name)
            listed.append({"name": shown, "upstreamName": name, "effect": effect, "rule": rule})
    about["leftOut"] = [
        {"kind": one.kind, "name": one.name, "reason": one.reason}
        for one in gateway.upstreams.left_out()
        if one.server == server.name
    ]
    return about


def _find_warnings(found: dict[str, Any]) -> list[str]:
    from ..protocol.tools import RECOMMENDED_NAME_CHARS

    names = [
        one["name"] for about in found.values() for one in about["tools"] if one["name"] is not None
    ]
    warnings = [
        f"the name {name} has {len(name)} characters. Hosts add a prefix, and models accept 64: "
        f'use at most {RECOMMENDED_NAME_CHARS}, for example with a shorter "prefix"'
        for name in names
        if len(name) > RECOMMENDED_NAME_CHARS
    ]
    for server, about in found.items():
        warnings += [
            f"{one['name']} of {server} is left out: {one['reason']}" for one in about["leftOut"]
        ]
    return warnings


def _print_server(name: str, about: dict[str, Any]) -> None:
    revision = f"  {about['revision']}" if about["revision"] else ""
    counts = [
        f"{len(about[kind])} {word}{'' if len(about[kind]) == 1 else 's'}"
        for kind, word in COUNTED.items()
        if about[kind]
    ]
    print_line(bold(name), f"  {about['state']}{revision}", dim(f"  {', '.join(counts)}".rstrip()))
    if "error" in about:
        _print_reason(about["error"])
    print_table(
        [
            (
                one["name"] or f"({one['upstreamName']})",
                one["effect"],
                one["rule"] if kind == "tools" else f"{one['rule']} ({COUNTED[kind]})",
            )
            for kind in COUNTED
            for one in about[kind]
        ],
        indent=2,
    )


def _print_reason(error: str) -> None:
    """Print why a server failed. If that includes many lines of stderr, print the last ones."""
    first, *rest = error.splitlines() or [""]
    left_out = [f"({len(rest) - MAX_STDERR_LINES} more lines)"]
    rest = rest if len(rest) <= MAX_STDERR_LINES else left_out + rest[-MAX_STDERR_LINES:]
    for line in [first, *rest]:
        print_line(f"  {line}".rstrip())
