#!/usr/bin/env python3
"""Changes the core, the protocol and the encoder in one place at a time, and looks which test notices it.

    tests/mutants.py                          # all of them; what has run is kept in target/core-mutants/results.jsonl
    tests/mutants.py core/news.rs order.rs    # those of files whose paths end so
    tests/mutants.py --table                  # what has run so far, and the missed ones with their reasons

It needs cargo-mutants (27.1.0), which says what can be changed, and the Python packages `tree-sitter` and `tree-sitter-rust`.

All mutants that compile together are in one build, each behind a switch, and an environment variable chooses one. Those that do not,
such as the value of a constant, have a build of their own each. A mutant is run only by the tests and by the cases of the explorer that
reach its place, the cheapest first. Each case of the explorer is cut at SITUATIONS. A case that takes 15 s longer than usual does not
end, and counts as noticed.
"""
import json, os, re, select, subprocess, sys, threading, time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tree_sitter, tree_sitter_rust

LANGUAGE = tree_sitter.Language(tree_sitter_rust.language())
ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "target/core-mutants"
COPY, TARGET = WORK / "copy", WORK / "build"
COPY_ALONE, ALONE_TARGET = WORK / "copy-alone", WORK / "build-alone"
FILES = tuple(f"mongolock/src/{name}" for name in ("core/", "protocol/", "store/mongo/encoder.rs", "store/mongo/fields.rs"))
SITUATIONS = 3_000
AT_A_TIME = os.cpu_count()

# Why no test notices a mutant that is missed, by its place.
ASKS = "only when a call asks, how long it waits between two commands, or which commands go together; the benchmark measures that"
REASONS = [
    (r"::hash with|Hash for", "the explorer's hash of a situation: more situations count as the same"),
    (r"core/(news|permits|order|stream|limits)\.rs", ASKS),
    (r"core/rooms\.rs.*(enter|may_be_free|touch|give_up_surplus|seek|seek_beside|send_copy|has_turn|time_slot|claim_for)$", ASKS),
    (r"core/rooms\.rs.*(has_turn|time_slot|seek_beside) ", ASKS),
    (r"core/sending\.rs.*(pump|pump_lane|has_room|go_together|short_limit|look|claim_row)$", ASKS),
    (r"core/replies\.rs.*(claim_failed|replies_of|pause_lanes)$", ASKS),
    (r"core/releases\.rs.*(is_in_turn|may_hand_over|released|ended)$", ASKS),
    (r"core/sets\.rs|core/calls\.rs.*(asks_at_once|can_end_by_reply|stops_waiting)|core/leases\.rs.*(renew_others|may_be_renewed|renew_now)", ASKS),
    (r"core/leases\.rs.*is_renewed_alone$|core/resuming\.rs.*resume$", ASKS),
    (r"core/mod\.rs", "a timer is due too early, and finds nothing to do"),
    (r"core/keys\.rs", "memory and time of a long queue"),
    (r"core/calls\.rs.*failure$|core/releases\.rs.*part_ended$|sight\.rs.*held_for", "the text of an error"),
    (r"> with >= in|< with <= in", "both sides are equal only at one moment, or never"),
]

# What every file calls that has mutants. A place that is reached for the first time is appended to a file.
SWITCH = """
/// Whether this mutant is the chosen one.
pub(crate) fn mutated(number: usize) -> bool {
    use std::io::Write as _;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    static CHOSEN: LazyLock<usize> = LazyLock::new(|| std::env::var("MUTANT").map_or(usize::MAX, |text| text.parse().unwrap()));
    static REACHED: [AtomicBool; MUTANTS] = [const { AtomicBool::new(false) }; MUTANTS];
    static FILE: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("MUTANTS_REACHED").ok());
    if let Some(file) = &*FILE
        && !REACHED[number].swap(true, Ordering::Relaxed)
    {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
        let _ = file.write_all(format!("{number}\\n").as_bytes());
    }
    *CHOSEN == number
}
"""


def ran(command, folder=ROOT, **environment):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=dict(os.environ, **environment))


def listed():
    """All mutants, as cargo-mutants lists them."""
    files = [word for file in FILES for word in ("-f", file + "**" * file.endswith("/"))]
    mutants = json.loads(ran(["cargo", "mutants", "--list", "--json", "-p", "mongolock", *files]).stdout)
    return [mutant for mutant in mutants if mutant["file"].startswith(FILES)]


# --- one file with all of its mutants ---

class Source:
    """A file, with its mutants behind switches. The comments `/*m7*/` and `/*e7*/` are around what belongs to mutant 7."""

    def __init__(self, path):
        self.path, self.text = path, (ROOT / path).read_bytes()
        self.starts = [0] + [index + 1 for index, byte in enumerate(self.text) if byte == 10]
        self.tree = tree_sitter.Parser(LANGUAGE).parse(self.text)
        # Of a place in the text: the places inside, and what is written for it.
        self.wrapped = defaultdict(list)
        self.inserted = defaultdict(list)

    def offset(self, point):
        line = self.text[self.starts[point["line"] - 1]:].split(b"\n", 1)[0].decode()
        return self.starts[point["line"] - 1] + len(line[:point["column"] - 1].encode())

    def node(self, mutant):
        start, end = self.offset(mutant["span"]["start"]), self.offset(mutant["span"]["end"])
        return self.tree.root_node.descendant_for_byte_range(start, end)

    def add(self, number, mutant):
        """Puts a mutant in; False if it has no place of its own."""
        genre, node, new = mutant["genre"], self.node(mutant), mutant["replacement"]
        head = f"if crate::core::mutated({number}) "
        if genre == "FnValue":
            while node.type != "block":
                node = node.parent
            text = f"/*m{number}*/{head}{{ return {new}; }}/*e{number}*/"
            self.inserted[node.start_byte + 1].append(text)
        elif genre == "BinaryOperator" and node.parent.type in ("binary_expression", "compound_assignment_expr"):
            self.wrapped[(node.parent.start_byte, node.parent.end_byte)].append((number, new, node.parent))
        elif genre == "UnaryOperator" and node.type == "unary_expression":
            self.wrapped[(node.start_byte, node.end_byte)].append((number, "", node))
        elif genre == "UnaryOperator" and node.parent.type == "unary_expression":
            self.wrapped[(node.parent.start_byte, node.parent.end_byte)].append((number, "", node.parent))
        elif genre == "MatchArm":
            while node.type != "match_arm":
                node = node.parent
            pattern = node.child_by_field_name("pattern")
            guard = pattern.child_by_field_name("condition")
            if guard is not None and guard.type in ("let_condition", "let_chain"):
                return False
            if guard is None:
                self.inserted[pattern.end_byte].append(f" /*m{number}*/if !crate::core::mutated({number})/*e{number}*/")
            else:
                self.wrapped[(guard.start_byte, guard.end_byte)].append((number, "delete", guard))
        elif genre == "MatchArmGuard":
            while node.type not in ("match_pattern", "match_arm"):
                node = node.parent
            if node.type == "match_arm":
                node = node.child_by_field_name("pattern")
            guard = node.child_by_field_name("condition")
            if guard is None or guard.type in ("let_condition", "let_chain"):
                return False
            self.wrapped[(guard.start_byte, guard.end_byte)].append((number, new, guard))
        else:
            return False
        return True

    def render(self, start, end, outer=None):
        """The text from here to there, with whatever is put in."""
        inside = sorted((key for key in self.wrapped if start <= key[0] and key[1] <= end and key != outer), key=lambda key: (key[0], -key[1]))
        pieces, at = [], start
        for key in inside:
            if key[0] >= at:
                pieces += [self.plain(at, key[0]), self.wrap(key)]
                at = key[1]
        return "".join([*pieces, self.plain(at, end)])

    def plain(self, start, end):
        pieces, at = [], start
        for place in sorted(place for place in self.inserted if start < place <= end):
            pieces += [self.text[at:place].decode(), *self.inserted[place]]
            at = place
        return "".join([*pieces, self.text[at:end].decode()])

    def wrap(self, key):
        text = self.render(*key, outer=key)
        # The operators that take the text apart come first.
        for number, new, node in sorted(self.wrapped[key], key=lambda entry: entry[1] not in ("&&", "||")):
            switch = f"crate::core::mutated({number})"
            mark = lambda text: f"/*m{number}*/{text}/*e{number}*/"
            if node.type == "unary_expression":
                changed = self.render(node.children[1].start_byte, key[1])
            elif node.type in ("binary_expression", "compound_assignment_expr") and new not in ("delete", "true", "false"):
                left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
                left, right = self.render(key[0], left.end_byte), self.render(right.start_byte, key[1])
                operator = self.text[node.child_by_field_name("operator").start_byte:node.child_by_field_name("operator").end_byte].decode()
                if new in ("&&", "||") and operator in ("&&", "||"):
                    text = mark(f"{{ let left = {left}; if left == ({str(operator == '&&').lower()} != {switch}) {{ {right} }} else {{ left }} }}")
                    text = f"({text})"
                    continue
                changed = f"{left} {new} {right}"
            elif new == "delete":
                text = f"{mark(f'!{switch} && ')}({text})"
                continue
            else:
                text = f"({mark(f'if {switch} {{ {new} }} else')} {{ {text} }})"
                continue
            if node.type == "compound_assignment_expr":
                text = f"{mark(f'if {switch} {{ {changed} }} else')} {{ {text} }}"
            else:
                text = f"({mark(f'if {switch} {{ {changed} }} else')} {{ {text} }})"
        return text

    def write(self):
        text = self.render(0, len(self.text))
        (COPY / self.path).write_text(text)
        return text


def together(mutants):
    """Writes all mutants into the copy that compile together. Returns the numbers of the others, and of those that cannot compile."""
    alone, impossible = set(), set()
    while True:
        sources, texts = {}, {}
        for number, mutant in enumerate(mutants):
            source = sources.setdefault(mutant["file"], Source(mutant["file"]))
            if number not in alone and not source.add(number, mutant):
                alone.add(number)
        for path, source in sources.items():
            texts[path] = source.write()
        missing = set(range(len(mutants))) - alone - {int(number) for text in texts.values() for number in re.findall(r"mutated\((\d+)\)", text)}
        if missing:
            sys.exit(f"these have no switch in the text: {sorted(missing)}")
        switch = COPY / "mongolock/src/core/mod.rs"
        switch.write_text(switch.read_text() + SWITCH.replace("MUTANTS]", f"{len(mutants)}]").replace("; MUTANTS", f"; {len(mutants)}"))
        wrong = {}
        for package in (["mongolock-explore"], ["mongolock", "--lib", "--tests"]):
            wrong = wrong or blamed(package, texts, mutants)
        print(f"{len(mutants) - len(alone)} together, {len(wrong)} of them do not compile", flush=True)
        if not wrong:
            return alone - impossible, impossible
        alone |= set(wrong)
        impossible |= {number for number, codes in wrong.items() if codes <= OF_TYPES}


# What the compiler says of an expression that has the wrong type, or of a value that does not exist.
OF_TYPES = {"E0061", "E0107", "E0277", "E0282", "E0308", "E0368", "E0369", "E0412", "E0423", "E0425", "E0432", "E0433", "E0599", "E0600", "E0614"}


def blamed(package, texts, mutants):
    """The mutants that do not compile, each with what the compiler says inside of it; that is unknown for one that is only near."""
    command = ["cargo", "check", "--message-format=json", "--locked", "-p", *package]
    done = ran(command, COPY, CARGO_TARGET_DIR=str(TARGET), RUSTFLAGS="--cap-lints=warn")
    wrong, errors = defaultdict(set), []
    for line in done.stdout.splitlines():
        message = json.loads(line).get("message") or {}
        if message.get("level") != "error" or not message.get("spans"):
            continue
        errors.append(message["rendered"])
        for is_primary in (True, False):
            spans = [span for span in all_spans(message) if span["is_primary"] == is_primary]
            if found := [pair for span in spans for pair in marked(texts, span, mutants)]:
                break
        for number, is_inside in found:
            wrong[number].add(message["code"]["code"] if is_inside and is_primary and message["code"] else "unknown")
    if done.returncode and not wrong:
        sys.exit(f"no mutant is blamed for this:\n{done.stderr[-3000:]}\n{errors[:5]}")
    return wrong


def all_spans(message):
    for span in message["spans"]:
        yield span
    for child in message.get("children", []):
        yield from child["spans"]


def marked(texts, span, mutants):
    """The innermost mutant around this place; or, as near ones, the arms of this `match`, what is in the same line, or the last before."""
    path = next((path for path in texts if span["file_name"].endswith(path.removeprefix("mongolock/"))), None)
    if path is None:
        return []
    text, start, end = texts[path].encode(), span["byte_start"], span["byte_end"]
    marks = [(match.start(), match[1], int(match[2])) for match in re.finditer(rb"/\*([me])(\d+)\*/", text)]
    around, before = [], None
    for at, kind, number in marks:
        if at < start:
            around.append(number) if kind == b"m" else around.remove(number)
            before = number if text.count(b"\n", at, start) < 5 else None
    if around:
        return [(around[-1], True)]
    node = tree_sitter.Parser(LANGUAGE).parse(text).root_node.descendant_for_byte_range(start, end)
    arms = []
    if node.parent is not None and node.parent.type == "match_expression":
        begun, ends = node.parent.start_byte, node.parent.end_byte
        arms = [number for at, _, number in marks if begun <= at < ends and mutants[number]["genre"] == "MatchArm"]
    begun, ends = text.rfind(b"\n", 0, start) + 1, text.find(b"\n", end)
    inside = [number for at, _, number in marks if begun <= at < ends]
    return [(number, False) for number in arms or inside or ([] if before is None else [before])]


# --- what reaches a place ---

SUITES = ["behaviour", "faults"]
# Of the suites, which wait more than they compute, a mutant is run by this number of tests, those that reach the fewest places.
MOST = 16
OF_NETS = {"explore": ["mongolock-explore"], "mongolock": ["mongolock", "--lib"]}
OF_SUITES = {name: ["mongolock-tests", "--test", name] for name in SUITES}


def built(packages, target=TARGET, folder=COPY):
    """Builds these tests, and says where their programs are; None if they do not compile."""
    programs = {}
    for name, package in packages.items():
        command = ["cargo", "test", "--no-run", "--message-format=json", "--locked", "-p", *package]
        done = ran(command, folder, CARGO_TARGET_DIR=str(target), RUSTFLAGS="--cap-lints=warn")
        if done.returncode:
            return None
        for line in done.stdout.splitlines():
            message = json.loads(line)
            if message.get("executable") and message["target"]["name"] == name:
                programs[name] = message["executable"]
    return programs


def reached(command, folder, **environment):
    """The places that a command reaches, and how many seconds it takes."""
    file = WORK / f"reached-{threading.get_ident()}"
    file.unlink(missing_ok=True)
    begun = time.monotonic()
    ran(command, folder, MUTANTS_REACHED=str(file), **environment)
    places = sorted({int(line) for line in file.read_text().split()}) if file.exists() else []
    return places, round(time.monotonic() - begun, 2)


def net_of(test):
    """Which net a test of the library belongs to. Those that reach a server come last."""
    if test.startswith(("core::", "protocol::")):
        return "pure"
    return "encoder" if test.startswith("store::mongo") else "engine"


class Nets:
    """The tests, the places that each reaches, and how long each takes."""

    def __init__(self, programs, tests=()):
        self.programs, self.tests = programs, list(tests)

    def find(self, name, cases, at_a_time):
        """Looks at what each of these tests reaches."""
        def looked():
            with ThreadPoolExecutor(at_a_time) as pool:
                return list(pool.map(lambda case: [*case, *reached(*self.command(*case))], cases()))
        self.tests += kept(name, looked)

    def cases(self):
        """The cases of the explorer, and the unit tests."""
        said = ran([self.programs["explore"]], COPY / "tests/explore").stdout
        found = [("explorer", match[1]) for match in re.finditer(r"^(\S.*?)  +\d+ +\d+ +\d+ +\d+ +\d+\.\d  ", said, re.MULTILINE)]
        return found + [(net_of(test), test) for test in self.listed("mongolock")]

    def listed(self, program):
        said = ran([self.programs[program], "--list", "--format", "terse"], COPY / "tests").stdout
        return [line[:-6] for line in said.splitlines() if line.endswith(": test")]

    def command(self, net, *tests):
        if net in SUITES:
            return [self.programs[net], "--exact", *tests], COPY / "tests"
        if net == "explorer":
            return [self.programs["explore"], "--exact", *tests], COPY / "tests/explore"
        return [self.programs["mongolock"], "--exact", *tests], COPY / "mongolock"

    def notices(self, number, nets):
        """The net and the test that notice a mutant; None if none does. Without a number all tests are asked."""
        for net in nets:
            tests = [test for test in self.tests if test[0] == net and (number is None or number in test[2])]
            if net in SUITES:
                tests = sorted(tests, key=lambda test: len(test[2]))[:MOST]
            tests.sort(key=lambda test: test[3])
            if tests and (test := self.fails(net, number, tests)):
                return net, test

    def fails(self, net, number, tests):
        seconds = {name: took for _, name, _, took in tests}
        environment = dict(os.environ, MONGOLOCK_EXPLORE="first", **({} if number is None else {"MUTANT": str(number)}))
        if net == "explorer":
            return lines_of(*self.command(net, *seconds), environment, seconds)
        failed = self.failed(net, list(seconds), sum(seconds.values()), environment)
        # What runs beside others may be slow for another reason.
        if failed and net != "pure" and not self.failed(net, failed[:1], max(seconds.values()), environment):
            failed = failed[1:2] and self.failed(net, failed[1:2], max(seconds.values()), environment)
        return failed[0] if failed else None

    def failed(self, net, names, seconds, environment):
        command, folder = self.command(net, *names)
        try:
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=30 + 3 * seconds)
        except subprocess.TimeoutExpired:
            return names
        return re.findall(r"^test (\S+) \.\.\. FAILED", done.stdout, re.MULTILINE) or (names if done.returncode else [])


def lines_of(command, folder, environment, seconds):
    """Reads what the explorer says of each case; the case that fails, panics or does not end."""
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    os.set_blocking(process.stdout.fileno(), False)
    left, said = list(seconds), b""
    try:
        while True:
            ready, _, _ = select.select([process.stdout], [], [], 15 + 4 * seconds.get(left[0] if left else "", 1))
            if not ready:
                return f"{left[0] if left else 'the end'} (does not end)"
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                break
            said += piece
            *lines, said = said.split(b"\n")
            for line in lines:
                line = line.decode()
                if "FAILED" in line:
                    return line.split("  ")[0]
                if left and line.startswith(left[0]):
                    left.pop(0)
        return f"{left[0] if left else 'the end'} (panics)" if process.wait() else None
    finally:
        process.kill()
        process.wait()


# --- runs ---

NETS = ["pure", "explorer", "engine", "encoder"]


class Results:
    def __init__(self):
        self.file = WORK / "results.jsonl"
        self.done = {}
        if self.file.exists():
            self.done = {line["number"]: line for line in map(json.loads, self.file.read_text().splitlines())}
        self.lock = threading.Lock()

    def note(self, number, mutant, outcome, begun):
        line = dict(number=number, file=mutant["file"], name=mutant["name"], outcome=outcome, seconds=round(time.monotonic() - begun, 1))
        with self.lock, self.file.open("a") as file:
            self.done[number] = line
            file.write(json.dumps(line) + "\n")


def run_together(nets, results, mutants, numbers, asked, at_a_time):
    def one(number):
        begun = time.monotonic()
        results.note(number, mutants[number], nets.notices(number, asked) or ("missed", asked[-1]), begun)
    with ThreadPoolExecutor(at_a_time) as pool:
        list(pool.map(one, numbers))


def run_alone(nets, results, mutants, numbers):
    """Each in a build of its own."""
    for number in numbers:
        begun, mutant = time.monotonic(), mutants[number]
        copy(ROOT, COPY_ALONE)
        change = mutant["diff"].replace("+++ ", f"+++ {mutant['file']}\t", 1)
        subprocess.run(["patch", "-p0", "--quiet"], cwd=COPY_ALONE, input=change, text=True, check=True)
        results.note(number, mutant, alone_notices(nets, "/store/" in mutant["file"]) or ("missed", NETS[-1]), begun)


def alone_notices(nets, is_encoder):
    """What notices the mutant of the second copy: the compiler, whose checks take seconds, or a test."""
    for package in (["mongolock-explore"], ["mongolock", "--lib", "--tests"])[is_encoder:]:
        checked = ran(["cargo", "check", "--locked", "-p", *package], COPY_ALONE, CARGO_TARGET_DIR=str(ALONE_TARGET), RUSTFLAGS="--cap-lints=warn")
        if checked.returncode:
            return ("pure", "assertions over constants") if "E0080" in checked.stderr else ("does not compile", "")
    for program, asked in (("explore", ["explorer"]), ("mongolock", ["pure", "engine", "encoder"]))[is_encoder:]:
        programs = built({program: OF_NETS[program]}, ALONE_TARGET, COPY_ALONE)
        if noticed := Nets(programs, nets.tests).notices(None, asked):
            return noticed


def copy(root, to):
    """The repository, with a shorter explorer that runs one case at a time. What has not changed keeps its time."""
    for path in ran(["git", "ls-files"], root).stdout.splitlines():
        old, new = root / path, to / path
        if not old.exists():
            continue
        text = old.read_bytes()
        if path.endswith("explore/src/cases.rs"):
            text = text.replace(b"12_000", str(SITUATIONS).encode())
        if path.endswith("explore/src/report.rs"):
            text = text.replace(b"AT_A_TIME: usize = 2", b"AT_A_TIME: usize = 1")
        if not new.exists() or new.read_bytes() != text:
            new.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(text)


def kept(name, make):
    """What was found before, or is found now."""
    file = WORK / name
    if not file.exists():
        file.write_text(json.dumps(make()))
    return json.loads(file.read_text())


def divided(mutants):
    copy(ROOT, COPY)
    return [sorted(numbers) for numbers in together(mutants)]


def table(mutants, results):
    """What has noticed the mutants, and of the missed ones how many have which reason."""
    counts, reasons = defaultdict(int), defaultdict(int)
    for number, line in sorted(results.done.items()):
        net = line["outcome"][0]
        counts[net] += 1
        if net == "missed":
            name = line["name"].split("src/")[1]
            reasons[next((reason for pattern, reason in REASONS if re.search(pattern, name)), f"**without a reason**: {name}")] += 1
    print("| outcome | mutants |\n|---|---|")
    for net, count in sorted(counts.items(), key=lambda pair: -pair[1]):
        print(f"| {net} | {count} |")
    print(f"| not run | {len(mutants) - len(results.done)} |\n\n| why no test notices it | mutants |\n|---|---|")
    for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1]):
        print(f"| {reason} | {count} |")


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    mutants, results = kept("list.json", listed), Results()
    if "--table" in sys.argv:
        return table(mutants, results)
    alone, impossible = map(set, kept("alone.json", lambda: divided(mutants)))
    words = tuple(word for word in sys.argv[1:] if not word.startswith("-")) or ("",)
    wanted = [number for number, mutant in enumerate(mutants) if mutant["file"].endswith(words)]
    new = [number for number in wanted if number not in results.done]
    for number in impossible.intersection(new):
        results.note(number, mutants[number], ("does not compile", ""), time.monotonic())
    nets = Nets(built(OF_NETS))
    nets.find("nets.json", nets.cases, AT_A_TIME)
    run_together(nets, results, mutants, [number for number in new if number not in alone | impossible], NETS, AT_A_TIME)
    run_alone(nets, results, mutants, [number for number in new if number in alone])
    missed = [number for number in wanted if number not in alone and results.done[number]["outcome"] == ["missed", NETS[-1]]]
    suites = Nets(built(OF_SUITES))
    suites.find("suites.json", lambda: [(name, test) for name in SUITES for test in suites.listed(name)], 2 * AT_A_TIME)
    run_together(suites, results, mutants, missed, SUITES, 2 * AT_A_TIME)


if __name__ == "__main__":
    main()
