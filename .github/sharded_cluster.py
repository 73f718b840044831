"""Starts a sharded cluster for tests: two shards and the config servers, each a replica set of one member, and a router on port
27017. The servers run on when the script ends.

Usage: sharded_cluster.py DIRECTORY_OF_THE_BINARIES DIRECTORY_FOR_THE_DATA
"""

import subprocess
import sys
import time
from pathlib import Path

from pymongo import MongoClient
from pymongo.errors import PyMongoError

ROUTER = 27017
# The port and the role of each replica set, by its name.
SETS = {"config": (27018, "--configsvr"), "first": (27019, "--shardsvr"), "second": (27020, "--shardsvr")}
# The tests set fail points.
PARAMETERS = ["--setParameter", "enableTestCommands=1"]
LIMIT = 60


def start(binary, port, *arguments):
    """Starts a server in the background, and waits until it listens."""
    fixed = ["--port", str(port), "--bind_ip", "127.0.0.1", "--fork", *PARAMETERS]
    subprocess.run([binary, *fixed, *arguments], check=True)


def admin(port, command):
    client = MongoClient("127.0.0.1", port, directConnection=True)
    try:
        return client.admin.command(command)
    finally:
        client.close()


def until_primary(port):
    end = time.monotonic() + LIMIT
    while not admin(port, "hello")["isWritablePrimary"]:
        if time.monotonic() > end:
            sys.exit(f"the server on port {port} is not a primary after {LIMIT} s")
        time.sleep(0.1)


def start_set(binaries, data, name):
    port, role = SETS[name]
    path = data / name
    path.mkdir(parents=True)
    files = ["--dbpath", path, "--logpath", path / "log"]
    start(binaries / "mongod", port, role, "--replSet", name, "--setParameter", "ttlMonitorSleepSecs=1", *files)
    admin(port, {"replSetInitiate": {"_id": name, "members": [{"_id": 0, "host": f"127.0.0.1:{port}"}]}})
    until_primary(port)


def main():
    binaries, data = (Path(argument).resolve() for argument in sys.argv[1:])
    for name in SETS:
        start_set(binaries, data, name)
    config = f"config/127.0.0.1:{SETS['config'][0]}"
    start(binaries / "mongos", ROUTER, "--configdb", config, "--logpath", data / "router.log")
    for name in ("first", "second"):
        admin(ROUTER, {"addShard": f"{name}/127.0.0.1:{SETS[name][0]}"})
    print("a sharded cluster listens on port", ROUTER)


if __name__ == "__main__":
    try:
        main()
    except PyMongoError as error:
        sys.exit(f"the cluster did not start: {error}")
