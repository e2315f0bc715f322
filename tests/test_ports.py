"""The ports that tests use for their servers."""

import socket
import subprocess
import sys

from .ports import RANGE, free_port

CHOOSE = """
from tests import ports
ports.RANGE = [{port}] * 1000 + list(range({port} + 1, {port} + 20))
print(ports.free_port())
"""


def test_another_process_does_not_choose_a_port_that_is_taken() -> None:
    port = free_port()
    code = CHOOSE.format(port=port)
    chosen = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert port < int(chosen.stdout) < port + 20


def test_a_server_can_listen_on_the_port() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        assert server.getsockname()[1] in RANGE
