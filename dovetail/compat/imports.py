"""Import `dovetail.compat` under the names of the other libraries (`dovetail run --compat`).

After `install()`, every import of `mcp…`, `mcp_types…` and `fastmcp…` finds a module whose names
are those of `dovetail.compat`, even if the libraries are installed. A name means the same wherever
it is imported from, except for the modules in `PLACES`. A name that Dovetail does not have raises
ImportError, as in any library, so `try … except ImportError` works.
"""

import sys
from importlib import import_module, metadata
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

from .instead import ELSEWHERE
from .server import SETTINGS

VERSIONS = {"mcp": "2.3.0", "mcp_types": "2.3.0", "fastmcp": "4.1.2"}
"""The libraries, and the versions to report if they are not installed."""
MODULES = frozenset(
    """app apps auth auth0 auth_context aws azure base bearer bearer_auth caching clerk client
    completions components config context decorators dependencies descope discord elicitation
    error_handling event_store exceptions extension extensions fastmcp func_metadata
    function_prompt function_resource function_tool github google helper_types http huggingface
    in_memory jsonrpc jwt keycloak lifespan local_provider logging low_level lowlevel mcpserver
    memory message messages metadata_utils methods middleware models oauth_proxy oci oidc_proxy
    path_security progress prompt prompts propelauth provider providers rate_limiting request_state
    resolve resource resource_manager resources roots routes sampling scalekit server session
    settings shared sse stdio streamable_http streamable_http_manager subscriptions supabase
    template templates timing tool tool_manager tools transforms transport_security transports
    types uri_template utilities version websocket workos""".split()  # noqa: SIM905
)
"""The parts of the names of their modules."""
PLACES = {
    **dict.fromkeys(("mcp.client", "mcp.client.client"), ("client",)),
    **dict.fromkeys(("mcp.types", "mcp_types"), ("types",)),
    "mcp": ("client", "types"),
}
"""The modules of `dovetail.compat` in which a module looks for names first."""
SDK_NAMES = {"FastMCP": "SDKFastMCP", "Server": "LowLevelServer"}
"""The names that mean something else in the official SDK than in FastMCP."""
ANNOTATIONS = frozenset(
    """ArgModelBase AuthProvider AuthorizationCode AuthorizationParams ElicitationFnT EventCallback
    EventId EventMessage EventStore FuncMetadata HandlerResult JSONRPCMessage ListRootsFnT
    LoggingFnT MessageHandlerFnT OAuthClientInformationFull OAuthToken ProgressFnT RefreshToken
    RequestResponder SamplingFnT ServerMessageMetadata ServerMiddleware SessionMessage StreamId
    StarletteWithLifespan StreamableHTTPTransport create_sse_app""".split()  # noqa: SIM905
)
"""The names that programs use only in annotations, or for options that Dovetail does not have."""
_Annotation: Any = type("Annotation", (), {"__class_getitem__": lambda *_: _Annotation})
READ_AS_DICT = ("mcp", "mcp_types", "mcp.client.streamable_http", "mcp.shared.exceptions")
"""The modules in which frameworks look for names with `vars`, so the names must be there."""


class _CompatModule(ModuleType):
    """A module of another library, whose names are looked up when they are used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(name)
        if name in MODULES and (self.__name__, name) != ("fastmcp", "settings"):
            return import_module(f"{self.__name__}.{name}")
        if (found := _find(self.__name__, name)) is None:
            raise AttributeError(_explain(self.__name__, name))
        setattr(self, name, found)
        return found


class _Finder:
    @staticmethod
    def find_spec(name: str, *_: Any) -> ModuleSpec | None:
        root, *parts = name.split(".")
        if root not in VERSIONS:
            return None
        if not MODULES.issuperset(parts):
            raise ImportError(_explain(*name.rpartition(".")[::2]), name=name)
        return ModuleSpec(name, _Finder, is_package=True)  # type: ignore[arg-type]

    create_module = staticmethod(lambda spec: _CompatModule(spec.name))

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        if module.__name__ in READ_AS_DICT:  # elsewhere, names are looked up when they are used
            compat = import_module("dovetail.compat")
            for name in {*compat.__all__, *compat.CLIENTS, "CONNECTION_CLOSED"}:
                getattr(module, name, None)


def install() -> None:
    """Make all later imports of the other libraries import `dovetail.compat`."""
    for name in [name for name in sys.modules if name.partition(".")[0] in VERSIONS]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder)


def _find(module: str, name: str) -> Any:
    """Return what a name means in a module; None if Dovetail does not have it."""
    if name == "__version__":
        library = module.partition(".")[0]
        installed = metadata.distributions(name=library)
        return next((each.version for each in installed), VERSIONS[library])
    if (module, name) == ("fastmcp", "settings"):
        return SimpleNamespace(**SETTINGS)
    if module.startswith("mcp."):
        name = SDK_NAMES.get(name, name)
    for place in (*PLACES.get(module, ()), ""):
        try:
            return getattr(import_module(f"dovetail.compat.{place}".rstrip(".")), name)
        except (AttributeError, ImportError):
            pass
    return _Annotation if name in ANNOTATIONS else None


def _explain(module: str, name: str) -> str:
    instead = ELSEWHERE.get(name) or "see docs/guides/moving.md for what Dovetail has"
    return f"cannot import {name} from {module} on dovetail.compat: {instead}"
