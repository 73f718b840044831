//! The names that a template can give, as a finite automaton, and the shortest name that two templates have in common.

use std::collections::{HashMap, VecDeque};

use super::language::{Hole, Values, escaped};
use super::pattern::Segment;

/// A nondeterministic finite automaton. The state 0 is the start.
pub(crate) struct Automaton {
    /// The moves of each state, with the state that each leads to.
    moves: Vec<Vec<(Symbols, usize)>>,
    /// The states in which a name can end.
    ends: Vec<usize>,
}

/// A set of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Symbols {
    One(char),
    AllBut(Vec<char>),
}

/// A pair of states, one of each automaton.
type Pair = (usize, usize);

impl Automaton {
    pub(crate) fn of(template: &[Segment]) -> Self {
        let mut automaton = Self {
            moves: vec![Vec::new()],
            ends: vec![0],
        };
        for segment in template {
            match segment {
                Segment::Text(text) => {
                    for character in text.chars() {
                        let next = automaton.state();
                        automaton.lead(&Symbols::One(character), next);
                        automaton.ends = vec![next];
                    }
                }
                Segment::Hole(hole) => automaton.hole(hole),
            }
        }
        automaton
    }

    /// The shortest word of both automata; `None` if they have no word in common.
    pub(crate) fn common_word(&self, other: &Self) -> Option<String> {
        let mut reached_from: HashMap<Pair, (Pair, Symbols)> = HashMap::new();
        let mut waiting = VecDeque::from([(0, 0)]);
        while let Some(pair) = waiting.pop_front() {
            if self.ends.contains(&pair.0) && other.ends.contains(&pair.1) {
                return Some(word(&reached_from, pair));
            }
            for (symbols, own) in &self.moves[pair.0] {
                for (others, theirs) in &other.moves[pair.1] {
                    let next = (*own, *theirs);
                    if let Some(common) = symbols.common(others)
                        && next != (0, 0)
                        && !reached_from.contains_key(&next)
                    {
                        reached_from.insert(next, (pair, common));
                        waiting.push_back(next);
                    }
                }
            }
        }
        None
    }

    /// Adds a state.
    fn state(&mut self) -> usize {
        self.moves.push(Vec::new());
        self.moves.len() - 1
    }

    /// Adds a move from each of the present ends.
    fn lead(&mut self, symbols: &Symbols, to: usize) {
        for end in self.ends.clone() {
            self.moves[end].push((symbols.clone(), to));
        }
    }

    /// Adds the moves that spell a text, from each of these states.
    fn spell(&mut self, from: &[usize], text: &str, to: usize) {
        let mut from = from.to_vec();
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            let next = if characters.peek().is_some() {
                self.state()
            } else {
                to
            };
            for state in from {
                self.moves[state].push((Symbols::One(character), next));
            }
            from = vec![next];
        }
    }

    /// Appends a placeholder.
    fn hole(&mut self, hole: &Hole) {
        match hole.values {
            Values::Any => self.text(hole.separator),
            Values::Unsigned(_) => self.number(hole.separator, false),
            Values::Signed(_) => self.number(hole.separator, true),
        }
    }

    /// Appends one or more characters, each of them as itself or as its escape.
    fn text(&mut self, separator: Option<char>) {
        let end = self.state();
        let from: Vec<usize> = self.ends.iter().copied().chain([end]).collect();
        let special: Vec<char> = separator.into_iter().chain(separator.map(|_| '%')).collect();
        for state in &from {
            self.moves[*state].push((Symbols::AllBut(special.clone()), end));
        }
        for character in special {
            self.spell(&from, &escaped(character, separator), end);
        }
        self.ends = vec![end];
    }

    /// Appends `0|[1-9][0-9]*`, with a sign before the second form if `is_signed`.
    fn number(&mut self, separator: Option<char>, is_signed: bool) {
        let (zero, digits) = (self.state(), self.state());
        let before = self.ends.clone();
        let mut from = before.clone();
        if is_signed {
            let minus = self.state();
            self.spell(&before, &escaped('-', separator), minus);
            from.push(minus);
        }
        for digit in '1'..='9' {
            self.spell(&from, &escaped(digit, separator), digits);
        }
        self.spell(&before, &escaped('0', separator), zero);
        for digit in '0'..='9' {
            self.spell(&[digits], &escaped(digit, separator), digits);
        }
        self.ends = vec![digits, zero];
    }
}

impl Symbols {
    /// The characters in both sets; `None` if there are none.
    fn common(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::One(one), Self::One(other)) => (one == other).then(|| self.clone()),
            (Self::One(one), Self::AllBut(without)) | (Self::AllBut(without), Self::One(one)) => {
                (!without.contains(one)).then_some(Self::One(*one))
            }
            (Self::AllBut(one), Self::AllBut(other)) => Some(Self::AllBut([one.as_slice(), other].concat())),
        }
    }
}

/// The word that leads to a pair of states. Where any letter is possible, the letters follow the alphabet, which makes
/// the parts of the word easy to tell apart.
fn word(reached_from: &HashMap<Pair, (Pair, Symbols)>, end: Pair) -> String {
    let mut path = Vec::new();
    let mut at = end;
    while let Some((before, symbols)) = reached_from.get(&at) {
        path.push(symbols);
        at = *before;
    }
    let mut letters = ('a'..='z').chain('0'..='9').cycle();
    let mut word = String::new();
    for symbols in path.into_iter().rev() {
        word.extend(match symbols {
            Symbols::One(character) => Some(*character),
            Symbols::AllBut(without) => letters.find(|letter| !without.contains(letter)),
        });
    }
    word
}
