//! Ways to break abide on purpose, one line each, and how they are built into a copy of the sources: all at once, each
//! behind a switch, so that one build tries them all.

/// Where the list is, from the root.
pub const LIST: &str = "crates/tidy/mutants.txt";
/// The variable that says which of them is to be broken; none when it is not set.
pub const SWITCH: &str = "ABIDE_MUTANT";
/// The file that every crate of the list can reach: there the switch is read.
const ROOT: &str = "crates/core/src/lib.rs";

/// One way to break it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The behaviour that it breaks.
    pub breaks: String,
    /// The file, from the root.
    pub file: String,
    /// The text before it in the file, when what it replaces is there more than once.
    pub after: Option<String>,
    /// A part of one line, either an expression or a statement.
    pub find: String,
    /// The replacement.
    pub replace: String,
}

/// Reads the list.
///
/// # Errors
/// The first problem of the list, with the number of the line.
pub fn parse(list: &str) -> Result<Vec<Mutant>, String> {
    let mut mutants: Vec<Mutant> = Vec::new();
    for (line, number) in list.lines().zip(1..) {
        if let Some(breaks) = line.strip_prefix("# ") {
            mutants.push(Mutant {
                breaks: breaks.to_owned(),
                file: String::new(),
                after: None,
                find: String::new(),
                replace: String::new(),
            });
            continue;
        }
        if line.is_empty() || mutants.is_empty() {
            continue;
        }
        let bad = || format!("{LIST}:{number}: expected `file`, `after`, `-` or `+`: {line:?}");
        let mutant = mutants.last_mut().ok_or_else(bad)?;
        let (field, text) = line.split_once(' ').ok_or_else(bad)?;
        match field {
            "file" => mutant.file = text.to_owned(),
            "after" => mutant.after = Some(text.to_owned()),
            "-" => mutant.find = text.to_owned(),
            "+" => mutant.replace = text.to_owned(),
            _ => return Err(bad()),
        }
    }
    if let Some(one) = mutants.iter().find(|one| !one.is_whole()) {
        let breaks = &one.breaks;
        return Err(format!("{LIST}: `file`, `-` or `+` is missing: {breaks}"));
    }
    match mutants.iter().find(|one| !one.is_apart()) {
        Some(one) => Err(format!(
            "{LIST}: `-` or `+` has an open bracket, or `-` is a `let`; write an expression, or a whole statement: {}",
            one.breaks
        )),
        None => Ok(mutants),
    }
}

impl Mutant {
    fn is_whole(&self) -> bool {
        !self.file.is_empty() && !self.find.is_empty() && !self.replace.is_empty()
    }

    /// `true` if both texts can stand in a block of their own: every bracket is closed, and what follows needs no
    /// variable of theirs. Otherwise the copy of the sources would not compile.
    fn is_apart(&self) -> bool {
        let count = |text: &str, one: char| text.matches(one).count();
        let closed = |text: &String| {
            [('(', ')'), ('[', ']'), ('{', '}')]
                .iter()
                .all(|(open, close)| count(text, *open) == count(text, *close))
        };
        closed(&self.find) && closed(&self.replace) && !self.find.starts_with("let ")
    }

    /// Position in the text of its file.
    ///
    /// # Errors
    /// That the text is not there any more, or more than once, or that an expression begins before it.
    pub fn position_in(&self, text: &str) -> Result<usize, String> {
        let Self { file, find, .. } = self;
        let from = match &self.after {
            None => 0,
            Some(after) => text
                .find(after.as_str())
                .ok_or_else(|| format!("{file} no longer has {after:?} ({})", self.breaks))?,
        };
        let mut found = text
            .match_indices(find.as_str())
            .map(|(at, _)| at)
            .filter(|at| *at >= from);
        let first = found.next();
        let first =
            first.ok_or_else(|| format!("{file} no longer has {find:?} ({})", self.breaks))?;
        let before = text[..first].chars().next_back();
        if before.is_some_and(|before| before == '.' || before == '_' || before.is_alphanumeric()) {
            return Err(format!(
                "{file}: {find:?} is only the end of an expression ({})",
                self.breaks
            ));
        }
        match (&self.after, found.next()) {
            (None, Some(_)) => Err(format!(
                "{file} has {find:?} twice: add `after` ({})",
                self.breaks
            )),
            _ => Ok(first),
        }
    }

    /// The text that runs one or the other as the switch says.
    fn switched(&self, number: usize) -> String {
        let Self { find, replace, .. } = self;
        let root = match self.file.starts_with("crates/core/") {
            true => "crate",
            false => "abide_core",
        };
        match find.ends_with(';') {
            true => format!("if {root}::mutant({number}) {{ {replace} }} else {{ {find} }}"),
            false => format!("(if {root}::mutant({number}) {{ {replace} }} else {{ {find} }})"),
        }
    }
}

/// The text of a file with all its mutants built in; they are numbered from 1 on, in the order of the list.
///
/// # Errors
/// All mutants that do not apply any more.
pub fn build_in(file: &str, mut text: String, mutants: &[Mutant]) -> Result<String, String> {
    let (mut positions, mut problems) = (Vec::new(), Vec::new());
    for (mutant, number) in mutants.iter().zip(1..) {
        if mutant.file == file {
            match mutant.position_in(&text) {
                Ok(at) => positions.push((at, mutant, number)),
                Err(problem) => problems.push(problem),
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems.join("\n"));
    }
    // From the end on, so that positions stay valid.
    positions.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
    for (at, mutant, number) in positions {
        text.replace_range(at..at + mutant.find.len(), &mutant.switched(number));
    }
    if file == ROOT {
        text.push_str(&switch());
    }
    Ok(text)
}

/// The function that reads the switch.
fn switch() -> String {
    format!(
        "\n/// Whether this one is broken on purpose.\npub fn mutant(number: u32) -> bool {{\n    \
         static WHICH: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();\n    \
         let which = || std::env::var(\"{SWITCH}\").ok()?.parse().ok();\n    \
         *WHICH.get_or_init(which) == Some(number)\n}}\n"
    )
}
