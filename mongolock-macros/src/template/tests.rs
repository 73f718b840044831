use super::*;
use crate::samples::{corpus, each_seed, text as random_text, word};

fn text(text: &str) -> Piece {
    Piece::Text(text.to_owned())
}

fn placeholder(range: Range<usize>, root: Root, steps: Vec<Access>) -> Piece {
    Piece::Placeholder(Placeholder { range, root, steps })
}

/// A placeholder without a path.
fn name(range: Range<usize>, root: &str) -> Piece {
    placeholder(range, Root::Name(root.to_owned()), vec![])
}

#[track_caller]
fn pieces(template: &str) -> Vec<Piece> {
    let (pieces, mistakes) = parse(template);
    assert_eq!(mistakes, [], "{template}");
    pieces
}

fn mistakes(template: &str) -> Vec<TemplateMistake> {
    let mistakes = parse(template).1.into_iter();
    mistakes.map(|(_, mistake)| mistake).collect()
}

/// The one mistake of a template and the text it is reported at.
#[track_caller]
fn mistake(template: &str) -> (&str, TemplateMistake) {
    let (_, mut found) = parse(template);
    assert_eq!(found.len(), 1, "{template}: {found:?}");
    let (range, mistake) = found.remove(0);
    (&template[range], mistake)
}

#[test]
fn reads_text_and_placeholders() {
    for (template, expected) in [
        ("nightly", vec![text("nightly")]),
        ("report:<id>", vec![text("report:"), name(7..11, "id")]),
        ("<id>:x", vec![name(0..4, "id"), text(":x")]),
        ("über 100 %", vec![text("über 100 %")]),
        ("<größe>", vec![name(0..9, "größe")]),
        ("<self>", vec![name(0..6, "self")]),
        // Doubled brackets are read from the left.
        ("a<<b>>c", vec![text("a<b>c")]),
        ("<<<id>>>", vec![text("<"), name(2..6, "id"), text(">")]),
        ("<<<<", vec![text("<<")]),
        ("<a>>><b>", vec![name(0..3, "a"), text(">"), name(5..8, "b")]),
    ] {
        assert_eq!(pieces(template), expected);
    }
}

#[test]
fn reads_paths_constants_and_positions() {
    let field = |name: &str| Access::Field(name.to_owned());
    let method = |name: &str| Access::Method(name.to_owned());
    let root = |name: &str| Root::Name(name.to_owned());
    let constant = |of: &str, name: &str| Root::Constant {
        of: of.to_owned(),
        name: name.to_owned(),
    };
    for (template, root, steps) in [
        ("<self.tenant>", root("self"), vec![field("tenant")]),
        (
            "<pair.0.1>",
            root("pair"),
            vec![Access::Index(0), Access::Index(1)],
        ),
        ("<o.id().x>", root("o"), vec![method("id"), field("x")]),
        ("<type.match>", root("type"), vec![field("match")]),
        ("<T::KIND>", constant("T", "KIND"), vec![]),
        ("<Self::KIND>", constant("Self", "KIND"), vec![]),
        ("<T::KIND.name()>", constant("T", "KIND"), vec![method("name")]),
        ("<0>", Root::Index(0), vec![]),
        ("<12>", Root::Index(12), vec![]),
    ] {
        assert_eq!(pieces(template), [placeholder(0..template.len(), root, steps)]);
    }
}

#[test]
fn a_separator_follows_each_placeholder_but_the_last() {
    for (template, expected) in [
        ("plain", vec![]),
        ("a:<id>:b", vec![None]),
        ("<a>:<b>/x<c>-", vec![Some(':'), Some('/'), None]),
        // Doubled brackets are halved first.
        ("<a>>><b>", vec![Some('>'), None]),
        ("<a>é<T::B>", vec![Some('é'), None]),
    ] {
        let pieces = pieces(template);
        let placeholders = (0..pieces.len()).filter(|at| matches!(pieces[*at], Piece::Placeholder(_)));
        let separators: Vec<_> = placeholders.map(|at| separator(&pieces, at)).collect();
        assert_eq!(separators, expected, "{template}");
    }
    let ambiguous = |template: &str| ambiguous_separators(template, &pieces(template));
    assert_eq!(ambiguous("%<a>:%<b>%"), []);
    let after = "<b>".to_owned();
    assert_eq!(
        ambiguous("<a>:<b>%<c>"),
        [(7..8, TemplateMistake::Percent { after })]
    );
}

#[test]
fn refuses_white_space_long_names_and_control_characters() {
    let control = |character| TemplateMistake::Control { character };
    for (template, at, expected) in [
        (" \t", " \t", TemplateMistake::Empty),
        (" a", " ", TemplateMistake::Blank { place: "begins" }),
        (
            "a\u{a0}\u{2003}",
            "\u{a0}\u{2003}",
            TemplateMistake::Blank { place: "ends" },
        ),
        ("a\nb", "\n", control('\n')),
        ("a\u{85}b", "\u{85}", control('\u{85}')),
        ("a\n", "\n", control('\n')),
    ] {
        assert_eq!(mistake(template), (at, expected));
    }
    let long = |bytes| [TemplateMistake::TooLong { bytes }];
    assert_eq!(mistakes(&"x".repeat(513)), long(513));
    assert_eq!(mistakes(&"é".repeat(257)), long(514));
    assert_eq!(mistakes(&"x".repeat(512)), []);
}

#[test]
fn refuses_unbalanced_brackets_and_braces() {
    let unclosed = |written: &str| TemplateMistake::Unclosed {
        written: written.to_owned(),
    };
    let braced = |written: &str, write: Option<&str>| TemplateMistake::Braced {
        written: written.to_owned(),
        write: write.map(str::to_owned),
    };
    let brace = |brace: &str| TemplateMistake::Brace {
        brace: brace.to_owned(),
    };
    for (template, at, expected) in [
        ("report:<id", "<id", unclosed("id")),
        ("a<", "<", unclosed("")),
        ("<a<b>", "<a", unclosed("a")),
        ("a>b", ">", TemplateMistake::Unopened),
        ("<a>>b", ">", TemplateMistake::Unopened),
        ("<<a>", ">", TemplateMistake::Unopened),
        ("report:{id}", "{id}", braced("{id}", Some("id"))),
        ("{id:?}", "{id:?}", braced("{id:?}", Some("id"))),
    ] {
        assert_eq!(mistake(template), (at, expected));
    }
    assert_eq!(mistakes("{<id>}"), [brace("{"), brace("}")]);
    assert_eq!(
        mistakes("{{id}}"),
        [brace("{"), braced("{id}", Some("id")), brace("}")]
    );
}

#[test]
fn refuses_placeholders_that_are_not_paths() {
    assert_eq!(mistake("< >"), ("< >", TemplateMistake::NoPlaceholder));
    let words = "id()|o.get(1)|pair.00|pair.+1|pair.4294967296|fut.await|_|Self|super|crate|a.self|a b|a..b|a-b|\"a\"|a.b()()|::N|\
                 T::|T::Inner::N|self::N|T::new()|00";
    for word in words.split('|') {
        let found = mistake(&format!("<{word}>")).1;
        assert!(matches!(found, TemplateMistake::Syntax { .. }), "{word}");
    }
    // Some have a probable meaning.
    for (written, meant) in [
        ("id()", None),
        (" order . id () ", Some("order.id()")),
        ("&id", Some("id")),
        ("r#type", Some("type")),
        ("id?", Some("id")),
    ] {
        let write = meant.map(str::to_owned);
        let written = written.to_owned();
        assert_eq!(
            mistake(&format!("<{written}>")).1,
            TemplateMistake::Syntax { written, write }
        );
    }
}

#[test]
fn reports_all_mistakes_at_once() {
    let adjacent = |left: &str, right: &str| TemplateMistake::Adjacent {
        left: left.to_owned(),
        right: right.to_owned(),
    };
    assert_eq!(mistake("x<a><b>").0, "<a><b>");
    assert_eq!(
        mistakes("<a><b><c>"),
        [adjacent("<a>", "<b>"), adjacent("<b>", "<c>")]
    );
    assert_eq!(mistakes("<a>-<b>"), []);
    assert_eq!(mistakes(" {id}<><a b>\n<x").len(), 6);
}

/// Every mistake points into its text.
#[track_caller]
fn assert_points_inside(template: &str) -> Vec<(Range<usize>, TemplateMistake)> {
    let (pieces, mistakes) = parse(template);
    let ambiguous = ambiguous_separators(template, &pieces);
    for (range, _) in mistakes.iter().chain(&ambiguous) {
        assert!(template.get(range.clone()).is_some(), "{template}");
    }
    mistakes
}

#[test]
fn the_corpus_is_read() {
    let corpus = corpus("template");
    let mistakes = corpus.iter().map(|(_, text)| assert_points_inside(text));
    let sound = mistakes.filter(Vec::is_empty).count();
    assert!(
        corpus.is_empty() || sound >= 5 && corpus.len() - sound >= 15,
        "{sound} of {}",
        corpus.len()
    );
}

#[test]
fn random_texts_are_read() {
    each_seed(|random| {
        assert_points_inside(&random_text(random, "<>{}. ()abcé_0123456789\n&:-", 0..=40));
        let any: String = (0..30)
            .map(|_| if random.bool() { random.char(..) } else { '<' })
            .collect();
        assert_points_inside(&any);

        let inside = format!("({})", random_text(random, "abcz<>: ", 0..=20));
        let escaped = inside.replace('<', "<<").replace('>', ">>");
        assert_eq!(pieces(&escaped), [Piece::Text(inside)]);

        let inner = [
            random_text(random, "&* ", 0..=2),
            word(random, "r#|"),
            random_text(random, "abc.", 1..=5),
            random_text(random, " ?", 0..=2),
            word(random, ":03|:?|"),
        ];
        let mistakes = mistakes(&format!("<{}>", inner.concat()));
        if let [
            TemplateMistake::Syntax {
                write: Some(write), ..
            },
        ] = mistakes.as_slice()
        {
            pieces(&format!("<{write}>"));
        }
    });
}
