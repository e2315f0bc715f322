"""Have a user log in before a server requires it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import Client


async def log_in(client: "Client") -> None:
    """Connect with the credentials of a user who logs in now, also if the server accepts the
    connection without them. The server is asked first, because its challenge says where to log in.

    Args:
        client: The client, whose credentials ignore earlier logins (`OAuth(fresh=True)`).

    Raises:
        Unauthorized: The user did not log in, or the server does not accept the login.
    """
    await client.connect()
    if not client._connector.logins:
        await client._connector.log_in()
