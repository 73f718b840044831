#!/usr/bin/env bash
# Downloads this version of MongoDB, with mongod and mongos, to ./mongodb.
set -euo pipefail
version=$1
archive="mongodb-linux-x86_64-ubuntu2204-$version.tgz"
mkdir mongodb
curl --fail --silent --show-error --location --retry 3 "https://fastdl.mongodb.org/linux/$archive" |
    tar --extract --gzip --directory mongodb --strip-components 1
mongodb/bin/mongod --version
