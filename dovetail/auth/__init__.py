"""Authorization: credentials for clients, guards for servers, and an authorization server.

    client/     `Client(auth=…)`: OAuth and other credentials, and stores for logins
    server/     `Server(auth=…)`: guards, and verifiers for access tokens
    provider/   `Server(auth=Provider(…))`: an authorization server inside the protected server

Each name below is imported on first use.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .client.browser import Browser, LoopbackBrowser, Visit
    from .client.credentials import (
        BearerToken,
        ClientCredentials,
        EnterpriseManaged,
        OAuth,
        WorkloadIdentity,
    )
    from .client.store import FileStore, KeychainStore, MemoryStore, Store, default_store
    from .dpop import Checker
    from .provider.clients import KnownClient
    from .provider.login import Upstream, hash_password
    from .provider.provider import Provider
    from .provider.storage import SqliteStorage, Storage
    from .server.guards import ApiKeys, Bearer
    from .server.verifiers import TokenRefused, Verifier, introspection, jwt, static_tokens

_NAMES = {
    "client.browser": "Browser LoopbackBrowser Visit",
    "client.credentials": "BearerToken ClientCredentials EnterpriseManaged OAuth WorkloadIdentity",
    "client.store": "FileStore KeychainStore MemoryStore Store default_store",
    "dpop": "Checker",
    "provider.clients": "KnownClient",
    "provider.login": "Upstream hash_password",
    "provider.provider": "Provider",
    "provider.storage": "SqliteStorage Storage",
    "server.guards": "ApiKeys Bearer",
    "server.verifiers": "TokenRefused Verifier introspection jwt static_tokens",
}

__all__ = [
    "ApiKeys", "Bearer", "BearerToken", "Browser", "Checker", "ClientCredentials",
    "EnterpriseManaged", "FileStore", "KeychainStore", "KnownClient", "LoopbackBrowser",
    "MemoryStore", "OAuth", "Provider", "SqliteStorage", "Storage", "Store", "TokenRefused",
    "Upstream", "Verifier", "Visit", "WorkloadIdentity", "default_store", "hash_password",
    "introspection", "jwt", "static_tokens",
]  # fmt: skip

__getattr__, __dir__ = lazy(globals(), _NAMES)
