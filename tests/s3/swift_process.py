"""All of OpenStack Swift in one process: account, container and object servers, and the proxy.

Four processes would import Swift four times. swift.py runs this file in isolated mode, because a
file named swift.py lies next to it; FOLDER contains the configurations.
"""

import sys
from typing import Any

import eventlet
import eventlet.wsgi
from swift.common import utils, wsgi
from swift.common.http_protocol import SwiftHttpProtocol
from swift.common.ring import RingBuilder

STORING = ("account", "container", "object")


def write_ring(folder: str, kind: str, port: int) -> None:
    """Write the ring file that places all objects of a kind on this machine."""
    builder = RingBuilder(4, 1, 1)  # 2**4 partitions, one replica, at least an hour between moves
    place = {"ip": "127.0.0.1", "port": port, "device": "d1"}
    builder.add_dev({"region": 1, "zone": 1, "weight": 1.0, **place})
    builder.rebalance()
    builder.get_ring().save(f"{folder}/{kind}.ring.gz")


def serve(conf: dict[str, Any], logger: Any, names: dict[str, str], strategy: Any) -> None:
    """Run one of the four servers as wsgi.run_server does, but with its own hub."""
    app = wsgi.loadapp(conf["__file__"], names)
    options = {"protocol": SwiftHttpProtocol, "capitalize_response_headers": False}
    eventlet.wsgi.server(wsgi.get_socket(conf), app, log_output=False, **options)


def main(folder: str, *ports: str) -> None:
    """Serve until terminated; ``ports`` are those of the three storage servers."""
    utils.SWIFT_CONF_FILE = f"{folder}/swift.conf"  # otherwise Swift reads /etc/swift
    for kind, port in zip(STORING, ports):
        write_ring(folder, kind, int(port))
    kinds = (*STORING, "proxy")
    checked = [wsgi.check_config(f"{folder}/{kind}.conf", f"{kind}-server") for kind in kinds]
    for server in [eventlet.spawn(serve, *found) for found in checked]:
        server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
