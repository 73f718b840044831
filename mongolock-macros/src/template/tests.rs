use super::*;
use crate::samples::{corpus, each_seed, rows, text as random_text, word};

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
    // Doubled brackets are read from the left.
    let table = r#"
        nightly => "nightly"
        report:<id> => "report:" <id> Name("id") []
        <id>:x => <id> Name("id") [] ":x"
        über 100 % => "über 100 %"
        <größe> => <größe> Name("größe") []
        <self> => <self> Name("self") []
        a<<b>>c => "a<b>c"
        <<<id>>> => "<" <id> Name("id") [] ">"
        <<<< => "<<"
        <a>>><b> => <a> Name("a") [] ">" <b> Name("b") []
        <self.tenant> => <self.tenant> Name("self") [Field("tenant")]
        <pair.0.1> => <pair.0.1> Name("pair") [Index(0), Index(1)]
        <o.id().x> => <o.id().x> Name("o") [Method("id"), Field("x")]
        <type.match> => <type.match> Name("type") [Field("match")]
        <T::KIND> => <T::KIND> Constant { of: "T", name: "KIND" } []
        <Self::KIND> => <Self::KIND> Constant { of: "Self", name: "KIND" } []
        <T::KIND.name()> => <T::KIND.name()> Constant { of: "T", name: "KIND" } [Method("name")]
        <0> => <0> Index(0) []
        <12> => <12> Index(12) []
    "#;
    for (template, expected) in rows(table) {
        let pieces = pieces(template).into_iter().map(|piece| match piece {
            Piece::Text(text) => format!("{text:?}"),
            Piece::Placeholder(Placeholder { range, root, steps }) => {
                format!("{} {root:?} {steps:?}", &template[range])
            }
        });
        let shown: Vec<String> = pieces.collect();
        assert_eq!(shown.join(" "), expected, "{template}");
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
    let percent = TemplateMistake::Percent { after };
    assert_eq!(ambiguous("<a>:<b>%<c>"), [(7..8, percent)]);
}

#[test]
fn refuses_white_space_long_names_and_control_characters() {
    let blank = |place| TemplateMistake::Blank { place };
    let control = |character| TemplateMistake::Control { character };
    for (template, at, expected) in [
        (" \t", " \t", TemplateMistake::Empty),
        (" a", " ", blank("begins")),
        ("a\u{a0}\u{2003}", "\u{a0}\u{2003}", blank("ends")),
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

/// Each mistake, after the text that it is reported at.
#[test]
fn reports_all_mistakes_at_once() {
    let table = r#"
        report:<id => <id Unclosed { written: "id" }
        a< => < Unclosed { written: "" }
        <a<b> => <a Unclosed { written: "a" }
        a>b => > Unopened
        <a>>b => > Unopened
        <<a> => > Unopened
        report:{id} => {id} Braced { written: "{id}", write: Some("id") }
        {id:?} => {id:?} Braced { written: "{id:?}", write: Some("id") }
        {<id>} => { Brace { brace: "{" }, } Brace { brace: "}" }
        {{id}} => { Brace { brace: "{" }, {id} Braced { written: "{id}", write: Some("id") }, } Brace { brace: "}" }
        x<a><b> => <a><b> Adjacent { left: "<a>", right: "<b>" }
        < > => < > NoPlaceholder
        <id()> => <id()> Syntax { written: "id()", write: None }
        < order . id () > => < order . id () > Syntax { written: " order . id () ", write: Some("order.id()") }
        <&id> => <&id> Syntax { written: "&id", write: Some("id") }
        <r#type> => <r#type> Syntax { written: "r#type", write: Some("type") }
        <id?> => <id?> Syntax { written: "id?", write: Some("id") }
    "#;
    for (template, expected) in rows(table) {
        let found = parse(template).1.into_iter();
        let found = found.map(|(at, mistake)| format!("{} {mistake:?}", &template[at]));
        let shown: Vec<String> = found.collect();
        assert_eq!(shown.join(", "), expected, "{template}");
    }
    assert_eq!(mistakes("<a>-<b>"), []);
    assert_eq!(mistakes("<a><b><c>").len(), 2);
    assert_eq!(mistakes(" {id}<><a b>\n<x").len(), 6);
}

#[test]
fn refuses_placeholders_that_are_not_paths() {
    let words = "id()|o.get(1)|pair.00|pair.+1|pair.4294967296|fut.await|_|Self|super|crate|a.self|a b|a..b|a-b|\"a\"|a.b()()|::N|\
                 T::|T::Inner::N|self::N|T::new()|00";
    for word in words.split('|') {
        let found = mistake(&format!("<{word}>")).1;
        assert!(matches!(found, TemplateMistake::Syntax { .. }), "{word}");
    }
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
    let (all, sound) = (corpus.len(), mistakes.filter(Vec::is_empty).count());
    assert!(all == 0 || sound >= 5 && all - sound >= 15, "{sound} of {all}");
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
