use proptest::prelude::*;

use super::*;

fn text(text: &str) -> Piece {
    Piece::Text(text.to_owned())
}

fn placeholder(range: Range<usize>, root: &str, steps: Vec<Access>) -> Piece {
    Piece::Placeholder(Placeholder {
        range,
        root: Root::Name(root.to_owned()),
        steps,
    })
}

fn pieces(template: &str) -> Vec<Piece> {
    let (pieces, mistakes) = parse(template);
    assert_eq!(mistakes, [], "{template}");
    pieces
}

fn mistakes(template: &str) -> Vec<TemplateMistake> {
    parse(template)
        .1
        .into_iter()
        .map(|(_, mistake)| mistake)
        .collect()
}

/// The one mistake of a template and the text it is reported at.
fn mistake(template: &str) -> (&str, TemplateMistake) {
    let (_, mut found) = parse(template);
    assert_eq!(found.len(), 1, "{template}: {found:?}");
    let (range, mistake) = found.remove(0);
    (&template[range], mistake)
}

fn syntax(written: &str, write: Option<&str>) -> TemplateMistake {
    TemplateMistake::Syntax {
        written: written.to_owned(),
        write: write.map(str::to_owned),
    }
}

#[test]
fn reads_text_and_placeholders() {
    assert_eq!(pieces("nightly"), [text("nightly")]);
    assert_eq!(
        pieces("report:<id>"),
        [text("report:"), placeholder(7..11, "id", vec![])]
    );
    assert_eq!(pieces("<id>:x"), [placeholder(0..4, "id", vec![]), text(":x")]);
    assert_eq!(pieces("über 100 %"), [text("über 100 %")]);
    assert_eq!(pieces("<größe>"), [placeholder(0..9, "größe", vec![])]);
}

#[test]
fn reads_paths() {
    let field = |name: &str| Access::Field(name.to_owned());
    let method = |name: &str| Access::Method(name.to_owned());
    assert_eq!(pieces("<self>"), [placeholder(0..6, "self", vec![])]);
    assert_eq!(
        pieces("<self.tenant>"),
        [placeholder(0..13, "self", vec![field("tenant")])]
    );
    assert_eq!(
        pieces("<pair.0.1>"),
        [placeholder(
            0..10,
            "pair",
            vec![Access::Index(0), Access::Index(1)]
        )]
    );
    assert_eq!(
        pieces("<o.id().x>"),
        [placeholder(0..10, "o", vec![method("id"), field("x")])]
    );
    assert_eq!(
        pieces("<type.match>"),
        [placeholder(0..12, "type", vec![field("match")])]
    );
}

#[test]
fn reads_constants_and_positions() {
    let constant = |of: &str, name: &str| Root::Constant {
        of: of.to_owned(),
        name: name.to_owned(),
    };
    for (template, root) in [
        ("<T::KIND>", constant("T", "KIND")),
        ("<Self::KIND>", constant("Self", "KIND")),
        ("<0>", Root::Index(0)),
        ("<12>", Root::Index(12)),
    ] {
        let range = 0..template.len();
        let steps = Vec::new();
        assert_eq!(
            pieces(template),
            [Piece::Placeholder(Placeholder { range, root, steps })]
        );
    }
    assert!(matches!(
        pieces("<T::KIND.name()>").as_slice(),
        [Piece::Placeholder(Placeholder { root: Root::Constant { .. }, steps, .. })] if steps.len() == 1
    ));
}

/// The separators of the placeholders of a template.
fn separators(template: &str) -> Vec<Option<char>> {
    let pieces = pieces(template);
    let placeholders = (0..pieces.len()).filter(|at| matches!(pieces[*at], Piece::Placeholder(_)));
    placeholders.map(|at| separator(&pieces, at)).collect()
}

#[test]
fn a_separator_follows_each_placeholder_but_the_last() {
    assert_eq!(separators("plain"), []);
    assert_eq!(separators("a:<id>:b"), [None]);
    assert_eq!(separators("<a>:<b>/x<c>-"), [Some(':'), Some('/'), None]);
    assert_eq!(
        separators("<a>>><b>"),
        [Some('>'), None],
        "doubled brackets are halved first"
    );
    assert_eq!(separators("<a>é<T::B>"), [Some('é'), None]);
}

#[test]
fn refuses_a_percent_sign_as_a_separator() {
    let ambiguous = |template: &str| ambiguous_separators(template, &pieces(template));
    assert_eq!(ambiguous("%<a>:%<b>%"), []);
    let after = "<b>".to_owned();
    assert_eq!(
        ambiguous("<a>:<b>%<c>"),
        [(7..8, TemplateMistake::Percent { after })]
    );
}

#[test]
fn reads_doubled_brackets_from_the_left() {
    assert_eq!(pieces("a<<b>>c"), [text("a<b>c")]);
    assert_eq!(
        pieces("<<<id>>>"),
        [text("<"), placeholder(2..6, "id", vec![]), text(">")]
    );
    assert_eq!(pieces("<<<<"), [text("<<")]);
    assert_eq!(
        pieces("<a>>><b>"),
        [
            placeholder(0..3, "a", vec![]),
            text(">"),
            placeholder(5..8, "b", vec![])
        ]
    );
}

#[test]
fn refuses_empty_blank_and_long_names() {
    assert_eq!(mistake("").1, TemplateMistake::Empty);
    assert_eq!(mistake(" \t").1, TemplateMistake::Empty);
    assert_eq!(mistake(" a"), (" ", TemplateMistake::Blank { place: "begins" }));
    assert_eq!(
        mistake("a\u{a0}\u{2003}"),
        ("\u{a0}\u{2003}", TemplateMistake::Blank { place: "ends" })
    );
    assert_eq!(
        mistakes(&"x".repeat(513)),
        [TemplateMistake::TooLong { bytes: 513 }]
    );
    assert_eq!(
        mistakes(&"é".repeat(257)),
        [TemplateMistake::TooLong { bytes: 514 }]
    );
    assert_eq!(mistakes(&"x".repeat(512)), []);
}

#[test]
fn refuses_control_characters() {
    assert_eq!(
        mistake("a\nb"),
        ("\n", TemplateMistake::Control { character: '\n' })
    );
    assert_eq!(
        mistake("a\u{85}b"),
        ("\u{85}", TemplateMistake::Control { character: '\u{85}' })
    );
    assert_eq!(
        mistake("a\n"),
        ("\n", TemplateMistake::Control { character: '\n' })
    );
}

#[test]
fn refuses_unbalanced_brackets() {
    let unclosed = |written: &str| TemplateMistake::Unclosed {
        written: written.to_owned(),
    };
    assert_eq!(mistake("report:<id"), ("<id", unclosed("id")));
    assert_eq!(mistake("a<"), ("<", unclosed("")));
    assert_eq!(mistake("<a<b>"), ("<a", unclosed("a")));
    assert_eq!(mistake("a>b"), (">", TemplateMistake::Unopened));
    assert_eq!(mistake("<a>>b"), (">", TemplateMistake::Unopened));
    assert_eq!(mistake("<<a>"), (">", TemplateMistake::Unopened));
}

#[test]
fn refuses_placeholders_that_are_not_paths() {
    assert_eq!(mistake("a<>"), ("<>", TemplateMistake::NoPlaceholder));
    assert_eq!(mistake("< >"), ("< >", TemplateMistake::NoPlaceholder));
    assert_eq!(mistake("<id + 1>").1, syntax("id + 1", None));
    assert_eq!(mistake("<v[0]>").1, syntax("v[0]", None));
    assert_eq!(mistake("<id()>").1, syntax("id()", None));
    assert_eq!(mistake("<o.get(1)>").1, syntax("o.get(1)", None));
    assert_eq!(mistake("<pair.00>").1, syntax("pair.00", None));
    assert_eq!(mistake("<pair.+1>").1, syntax("pair.+1", None));
    assert_eq!(mistake("<pair.4294967296>").1, syntax("pair.4294967296", None));
    assert_eq!(mistake("<fut.await>").1, syntax("fut.await", None));
    for word in [
        "_",
        "Self",
        "super",
        "crate",
        "a.self",
        "a b",
        "a..b",
        "a-b",
        "\"a\"",
        "a.b()()",
        "::N",
        "T::",
        "T::Inner::N",
        "self::N",
        "T::new()",
        "00",
    ] {
        assert!(
            matches!(mistake(&format!("<{word}>")).1, TemplateMistake::Syntax { .. }),
            "{word}"
        );
    }
}

#[test]
fn suggests_the_probable_placeholder() {
    assert_eq!(
        mistake("< order . id () >").1,
        syntax(" order . id () ", Some("order.id()"))
    );
    assert_eq!(mistake("<id:03>").1, syntax("id:03", Some("id")));
    assert_eq!(mistake("<&id>").1, syntax("&id", Some("id")));
    assert_eq!(mistake("<r#type>").1, syntax("r#type", Some("type")));
    assert_eq!(mistake("<id?>").1, syntax("id?", Some("id")));
}

#[test]
fn refuses_braces() {
    let braced = |written: &str, write: Option<&str>| TemplateMistake::Braced {
        written: written.to_owned(),
        write: write.map(str::to_owned),
    };
    let brace = |brace: &str| TemplateMistake::Brace {
        brace: brace.to_owned(),
    };
    assert_eq!(mistake("report:{id}"), ("{id}", braced("{id}", Some("id"))));
    assert_eq!(mistake("{}"), ("{}", braced("{}", None)));
    assert_eq!(mistake("{id:?}").1, braced("{id:?}", Some("id")));
    assert_eq!(mistake("a}"), ("}", brace("}")));
    assert_eq!(mistakes("{<id>}"), [brace("{"), brace("}")]);
    assert_eq!(
        mistakes("{{id}}"),
        [brace("{"), braced("{id}", Some("id")), brace("}")]
    );
}

#[test]
fn refuses_adjacent_placeholders() {
    let adjacent = |left: &str, right: &str| TemplateMistake::Adjacent {
        left: left.to_owned(),
        right: right.to_owned(),
    };
    assert_eq!(mistake("x<a><b>"), ("<a><b>", adjacent("<a>", "<b>")));
    assert_eq!(
        mistakes("<a><b><c>"),
        [adjacent("<a>", "<b>"), adjacent("<b>", "<c>")]
    );
    assert_eq!(mistakes("<a>-<b>"), []);
}

#[test]
fn reports_all_mistakes_at_once() {
    assert_eq!(mistakes(" {id}<><a b>\n<x").len(), 6);
}

/// The texts with which fuzzing begins.
#[test]
fn the_corpus_is_read_and_every_mistake_points_into_its_text() {
    let Some(corpus) = crate::corpus::texts("template") else {
        return;
    };
    let mut sound = 0;
    for (name, text) in &corpus {
        let (pieces, mistakes) = parse(text);
        for (range, mistake) in &mistakes {
            assert!(text.get(range.clone()).is_some(), "{name}: {mistake:?}");
        }
        for (range, _) in ambiguous_separators(text, &pieces) {
            assert!(text.get(range).is_some(), "{name}");
        }
        sound += usize::from(mistakes.is_empty());
    }
    assert!(
        sound >= 5 && corpus.len() - sound >= 15,
        "{sound} of {}",
        corpus.len()
    );
}

proptest! {
    #[test]
    fn never_panics_and_points_into_the_template(template in "[<>{}. ()a-cé_0-9\n&:-]{0,40}") {
        for (range, _) in parse(&template).1 {
            prop_assert!(template.get(range).is_some());
        }
    }

    #[test]
    fn never_panics_on_any_text(template in "(\\PC|[<>]){0,30}") {
        let _ = parse(&template);
    }

    #[test]
    fn escaped_text_is_read_back(text in "[a-z<>: ]{0,20}") {
        let text = format!("({text})");
        let escaped = text.replace('<', "<<").replace('>', ">>");
        prop_assert_eq!(pieces(&escaped), [Piece::Text(text)]);
    }

    #[test]
    fn the_pieces_together_are_the_template(template in "[a-c]{1,3}(:<[a-c]{1,3}(\\.[a-c]{1,3}(\\(\\))?|\\.[1-9])?>){0,4}") {
        let written: String = pieces(&template)
            .into_iter()
            .map(|piece| match piece {
                Piece::Text(text) => text,
                Piece::Placeholder(placeholder) => template[placeholder.range].to_owned(),
            })
            .collect();
        prop_assert_eq!(written, template);
    }

    #[test]
    fn suggestions_are_accepted(inner in "[&* ]{0,2}(r#)?[a-c.]{1,5}[ ?]{0,2}(:[0-9?]{0,3})?") {
        if let [TemplateMistake::Syntax { write: Some(write), .. }] = mistakes(&format!("<{inner}>")).as_slice() {
            prop_assert_eq!(mistakes(&format!("<{write}>")), []);
        }
    }
}
