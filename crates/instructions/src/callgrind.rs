//! Runs this program under valgrind, and reads what it has counted.

use std::path::Path;
use std::process::Command;

/// What one operation costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Instructions of this program's own code.
    pub instructions: u64,
    /// Allocations that this program's own code makes; a block that grows counts as one.
    pub allocations: u64,
}

/// The functions of the C library that allocate.
const ALLOCATING: [&str; 6] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
];

/// `true` if valgrind exists for this kind of machine, and the counts are meaningful there.
pub const fn is_supported() -> bool {
    cfg!(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64")
    ))
}

/// Runs this program with the argument, and returns the cost of each of the `calls` calls of that function.
pub fn count(function: &str, arg: &str, calls: usize) -> Result<Vec<Cost>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let out = directory.path().join("out");
    // Each call writes a file of its own: out.1, out.2 and so on. What is counted after the last one is in `out`.
    let run = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(format!("--zero-before={function}"))
        .arg(format!("--dump-after={function}"))
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(&program)
        .arg(arg)
        .output()
        .map_err(|error| format!("valgrind cannot be run: {error}; run `make setup`"))?;
    if !run.status.success() {
        let text = String::from_utf8_lossy(&run.stderr);
        return Err(format!("valgrind failed ({}):\n{text}", run.status));
    }
    let dump = |number: usize| {
        let path = format!("{}.{number}", out.display());
        let text = std::fs::read_to_string(&path).map_err(|error| {
            format!("valgrind has not counted call {number} of `{function}`: {path}: {error}")
        })?;
        cost(&text, &program)
    };
    (1..=calls).map(dump).collect()
}

/// Adds up what a dump says about the code of one program.
///
/// `ob=` names the object that the following lines are about, until the next one; a line of numbers is a position and
/// what was spent there itself. After `calls=` there is one line with what the called function spent, which that
/// function's own lines contain.
fn cost(dump: &str, program: &Path) -> Result<Cost, String> {
    let program = program.to_string_lossy();
    let mut cost = Cost::default();
    let (mut own, mut callee, mut is_callees) = (false, "", false);
    for line in dump.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            own = object == program;
        } else if let Some(function) = line.strip_prefix("cfn=") {
            callee = function;
        } else if let Some(calls) = line.strip_prefix("calls=") {
            is_callees = true;
            if own && ALLOCATING.contains(&callee) {
                cost.allocations += number(calls.split(' ').next(), line)?;
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit())
            && !std::mem::take(&mut is_callees)
            && own
        {
            cost.instructions += number(line.split(' ').next_back(), line)?;
        }
    }
    match cost.instructions {
        0 => Err(format!("the dump says nothing about {program}")),
        _ => Ok(cost),
    }
}

fn number(text: Option<&str>, line: &str) -> Result<u64, String> {
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("a line of the dump has no number: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "\
events: Ir
ob=/lib/libc.so.6
fl=malloc.c
fn=malloc
20 500

ob=/bin/counts
fl=store.rs
fn=run
10 40
cob=/lib/libc.so.6
cfi=malloc.c
cfn=malloc
calls=3 20
11 500
cfn=realloc
cob=/lib/libc.so.6
calls=1 20
11 70
cfn=step
calls=2 30
12 9
fi=inlined.rs
13 2
fe=store.rs
fn=step
30 9
totals: 551
";

    #[test]
    fn only_the_programs_own_code_is_counted_and_its_allocations() {
        let counted = cost(DUMP, Path::new("/bin/counts")).unwrap();
        let expected = Cost {
            instructions: 40 + 2 + 9,
            allocations: 3 + 1,
        };
        assert_eq!(counted, expected);
    }

    #[test]
    fn a_dump_without_the_program_is_an_error() {
        let problem = cost(DUMP, Path::new("/bin/other")).unwrap_err();
        assert!(problem.contains("/bin/other"), "{problem}");
    }
}
