"""Checks which types of other crates the public API of mongolock names.

A new major version of one of these crates is a breaking change of mongolock. The list is that of
`[package.metadata.external-types]` in mongolock/Cargo.toml. It needs a nightly compiler (RUSTUP_TOOLCHAIN=nightly).
"""

import json
import os
import subprocess
import sys
import tomllib

OWN = {"mongolock", "mongolock_macros"}
# What pin-project-lite adds to the bounds of `Unpin` cannot be named outside of it.
STANDARD = {"core", "alloc", "std", "pin_project_lite"}


def ids(node):
    """The ids of all types and traits that a part of rustdoc's output refers to."""
    if isinstance(node, dict):
        if "path" in node and isinstance(node.get("id"), int):
            yield node["id"]
        for key, value in node.items():
            # Links in texts are not a part of the API.
            if key not in ("links", "docs", "attrs"):
                yield from ids(value)
    elif isinstance(node, list):
        for value in node:
            yield from ids(value)


def is_synthetic(item):
    """Implementations that the compiler derives, and those for all types, which come from other crates."""
    implementation = item["inner"].get("impl")
    return implementation and (implementation["is_synthetic"] or implementation["blanket_impl"])


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.chdir(root)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    command = ["cargo", "rustdoc", "-p", "mongolock", "--lib", "--features", "metrics", "--locked"]
    subprocess.run([*command, "--", "-Z", "unstable-options", "--output-format", "json"], check=True)
    with open(os.path.join(target, "doc", "mongolock.json"), encoding="utf-8") as file:
        documented = json.load(file)
    with open("mongolock/Cargo.toml", "rb") as file:
        allowed = set(tomllib.load(file)["package"]["metadata"]["external-types"]["allowed"])

    crates = {int(number): crate["name"] for number, crate in documented["external_crates"].items()}
    found = {}
    for item in documented["index"].values():
        if item["crate_id"] != 0 or item["visibility"] not in ("public", "default") or is_synthetic(item):
            continue
        for number in ids(item["inner"]):
            path = documented["paths"].get(str(number))
            if path is None or path["crate_id"] == 0:
                continue
            if crates[path["crate_id"]] in OWN | STANDARD:
                continue
            found.setdefault("::".join(path["path"]), item["name"] or "an implementation")

    if not found:
        sys.exit("no type of another crate was found: the output of rustdoc was not understood")
    unknown = {path: where for path, where in found.items() if path not in allowed}
    for path in sorted(found):
        print(path, "" if path in allowed else f"is not in the list; used by {found[path]}")
    unused = allowed - set(found)
    for path in sorted(unused):
        print(path, "is in the list and not used")
    sys.exit(1 if unknown or unused else 0)


if __name__ == "__main__":
    main()
