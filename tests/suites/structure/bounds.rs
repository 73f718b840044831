//! Bounds of the sizes, in lines of code, that only go down: what is larger than its bound is refused, and so is what has become
//! clearly smaller, so that its bound is lowered with it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::module_tree::ModuleTree;
use crate::sizes::{Source, sources};
use crate::{assert_none, workspace};

/// The greatest size of a file.
const FILE: usize = 400;

/// The greatest size of a function.
const FUNCTION: usize = 60;

/// The room of the library's files that have no folder.
const SINGLE_FILES: &str = "single files";

/// The bounds of the library's rooms: its top folders, each with the file of its name, and the folders of `store`.
const ROOMS: &[(&str, usize)] = &[
    ("admin", 742),
    ("blocking", 109),
    ("commit", 242),
    ("context", 196),
    ("core", 3588),
    ("engine", 1562),
    ("error", 907),
    ("guide", 22),
    ("fence", 543),
    ("handle", 185),
    ("lock", 367),
    ("name", 286),
    ("protocol", 557),
    ("provider", 260),
    ("run", 275),
    ("single files", 1687),
    ("store", 1721),
    ("store/memory", 137),
    ("store/mongo", 489),
    ("timing", 21),
];

/// The files that are larger than [`FILE`].
const LARGE_FILES: &[(&str, usize)] = &[];

/// The functions that are larger than [`FUNCTION`].
const LONG_FUNCTIONS: &[(&str, usize)] = &[
    ("mongolock-cli/src/doctor/documents.rs: documents", 70),
    ("mongolock-macros/src/error/template.rs: fmt", 66),
];

/// The room of a file, whose path begins below the `src` of the library.
fn room(source: &Path, file: &Path) -> String {
    let parts: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
    let name = |depth: usize| parts[depth].trim_end_matches(".rs");
    let is_room = |path: &Path| source.join(path).is_dir();
    let top = Path::new(name(0));
    if !is_room(top) {
        return SINGLE_FILES.to_owned();
    }
    let within = (top == Path::new("store") && parts.len() > 1).then(|| top.join(name(1)));
    let found = within
        .filter(|within| is_room(within))
        .unwrap_or_else(|| top.to_owned());
    found.display().to_string()
}

/// The bounds that are wrong, as lines that can be written into the table. A size may be a little smaller than its bound, so that
/// not every change of a line changes the table.
fn wrong(what: &str, sizes: &BTreeMap<String, usize>, bounds: &[(&str, usize)]) -> Vec<String> {
    let bound_of = |name: &str| {
        let bound = bounds.iter().find(|(bounded, _)| *bounded == name);
        bound.map(|(_, bound)| *bound)
    };
    let is_right = |size: usize, bound: usize| size <= bound && size + bound / 50 + 3 >= bound;
    let measured = sizes.iter().filter_map(|(name, size)| match bound_of(name) {
        Some(bound) if is_right(*size, bound) => None,
        Some(bound) => Some(format!(
            "    (\"{name}\", {size}), // {what}: the bound is {bound}"
        )),
        None => Some(format!("    (\"{name}\", {size}), // {what}: there is no bound")),
    });
    let gone = bounds.iter().filter(|(name, _)| !sizes.contains_key(*name));
    let gone = gone.map(|(name, bound)| format!("    // {what}: remove (\"{name}\", {bound})"));
    measured.chain(gone).collect()
}

/// The sizes of the library's rooms, without the files that only tests compile.
fn rooms(source: &Path) -> BTreeMap<String, usize> {
    let mut rooms = BTreeMap::new();
    for file in ModuleTree::read(source).files {
        let below = file.strip_prefix(source).expect("it is a file of the library");
        *rooms.entry(room(source, below)).or_default() += Source::read(&file).size();
    }
    rooms
}

#[test]
fn the_sizes_keep_their_bounds() {
    let (mut files, mut functions) = (BTreeMap::new(), BTreeMap::new());
    for file in sources(&workspace()) {
        let source = Source::read(&file);
        let name = file.strip_prefix(workspace()).expect("it is in the workspace");
        let name = name.display().to_string();
        for (function, size) in source
            .functions()
            .into_iter()
            .filter(|(_, size)| *size > FUNCTION)
        {
            let greatest: &mut usize = functions.entry(format!("{name}: {function}")).or_default();
            *greatest = size.max(*greatest);
        }
        if source.size() > FILE {
            files.insert(name, source.size());
        }
    }
    let rooms = rooms(&workspace().join("mongolock/src"));
    let problems = [
        wrong("ROOMS", &rooms, ROOMS),
        wrong("LARGE_FILES", &files, LARGE_FILES),
        wrong("LONG_FUNCTIONS", &functions, LONG_FUNCTIONS),
    ];
    assert_none(&problems.concat());
}

#[test]
fn a_size_above_or_far_below_its_bound_and_an_unknown_room_are_refused() {
    let sizes = [("a", 1001), ("b", 900), ("c", 990), ("d", 1)].map(|(name, size)| (name.to_owned(), size));
    let bounds = [("a", 1000), ("b", 1000), ("c", 1000), ("e", 5)];
    let found = wrong("ROOMS", &sizes.into_iter().collect(), &bounds);
    let expected = [
        "    (\"a\", 1001), // ROOMS: the bound is 1000",
        "    (\"b\", 900), // ROOMS: the bound is 1000",
        "    (\"d\", 1), // ROOMS: there is no bound",
        "    // ROOMS: remove (\"e\", 5)",
    ];
    assert_eq!(found, expected);
}
