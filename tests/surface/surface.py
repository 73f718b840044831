#!/usr/bin/env python3
"""Counts what a user of the crate can see: public types and traits, and their own methods.

    cargo doc --no-deps -p mongolock && python3 tests/surface/surface.py

It reads the pages that rustdoc has written, so hidden items, items of private modules, and methods of foreign traits
(`Debug`, `Clone`) do not count. A method counts once for each type that has it. `--list` prints them.
"""
import collections
import html
import pathlib
import re
import sys

DOC = pathlib.Path(__file__).resolve().parents[2] / "target" / "doc" / "mongolock"
KINDS = {"struct": "types", "enum": "types", "trait": "traits"}


def own_part(page):
    """The page without the implementations of traits."""
    for heading in ('id="trait-implementations"', 'id="synthetic-implementations"', 'id="implementors"'):
        page = page.split(heading)[0]
    return page


def main():
    counts = collections.Counter()
    for path in sorted(DOC.rglob("*.html")):
        kind, _, name = path.stem.partition(".")
        if kind not in KINDS or "fuzzing" in path.parts:
            continue
        page = path.read_text()
        if 'http-equiv="refresh"' in page:
            continue  # The place at which a public item is defined, in a private module.
        counts[KINDS[kind]] += 1
        # A method of several implementations has a number for each.
        ids = re.findall(r'<section id="(?:ty)?method\.([^"]+)"', own_part(page))
        methods = {re.sub(r"-\d+$", "", name) for name in ids}
        counts["methods"] += len(methods)
        if "--list" in sys.argv:
            place = "::".join([*path.parent.relative_to(DOC).parts, name])
            print(f"{KINDS[kind]:<7}{html.unescape(place)}: {' '.join(sorted(methods))}")
    print(f"{counts['types']} types, {counts['traits']} traits, {counts['methods']} methods")


if __name__ == "__main__":
    main()
