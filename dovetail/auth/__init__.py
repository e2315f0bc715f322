"""Authorization, for clients (who gets in, and how) and for servers (who is let in).

Nothing is loaded before it is used: each name below is imported from its home when first asked for.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .apikeys import ApiKeys
    from .browser import Browser, LoopbackBrowser, Visit
    from .credentials import (
        BearerToken,
        ClientCredentials,
        EnterpriseManaged,
        OAuth,
        WorkloadIdentity,
    )
    from .dpop import Checker
    from .guard import Bearer
    from .introspection_verifier import introspection
    from .jwt_verifier import jwt
    from .provider.clients import KnownClient
    from .provider.passwords import hash_password
    from .provider.server import Provider
    from .provider.storage import SqliteStorage, Storage
    from .provider.upstream import Upstream
    from .store import FileStore, KeychainStore, MemoryStore, Store, default_store
    from .tokens import TokenRefused, Verifier, static_tokens

_HOMES = {
    "ApiKeys": "apikeys",
    "Bearer": "guard",
    "BearerToken": "credentials",
    "Browser": "browser",
    "Checker": "dpop",
    "ClientCredentials": "credentials",
    "EnterpriseManaged": "credentials",
    "FileStore": "store",
    "KeychainStore": "store",
    "KnownClient": "provider.clients",
    "LoopbackBrowser": "browser",
    "MemoryStore": "store",
    "OAuth": "credentials",
    "Provider": "provider.server",
    "SqliteStorage": "provider.storage",
    "Storage": "provider.storage",
    "Store": "store",
    "TokenRefused": "tokens",
    "Upstream": "provider.upstream",
    "Verifier": "tokens",
    "Visit": "browser",
    "WorkloadIdentity": "credentials",
    "default_store": "store",
    "hash_password": "provider.passwords",
    "introspection": "introspection_verifier",
    "jwt": "jwt_verifier",
    "static_tokens": "tokens",
}

__all__ = [
    "ApiKeys", "Bearer", "BearerToken", "Browser", "Checker", "ClientCredentials",
    "EnterpriseManaged", "FileStore", "KeychainStore", "KnownClient", "LoopbackBrowser",
    "MemoryStore", "OAuth", "Provider", "SqliteStorage", "Storage", "Store", "TokenRefused",
    "Upstream", "Verifier", "Visit", "WorkloadIdentity", "default_store", "hash_password",
    "introspection", "jwt", "static_tokens",
]  # fmt: skip

__getattr__, __dir__ = lazy(globals(), _HOMES)
