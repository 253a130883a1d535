//! The name of this program's build. Instances that one build cannot run are left to other builds (rule 12.4).

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::OnceLock;

use abide_core::model::Name;

/// The part of a program that is read: this many pieces of this many bytes, spread over the whole file.
const PIECES: u64 = 256;
const PIECE_BYTES: u64 = 4_096;

/// The default name of this build: the file name of the program and a hash of that file's content. Copies of one
/// program are one build, wherever and whenever they were made.
pub(super) fn of_this_program() -> Name {
    static BUILD: OnceLock<Name> = OnceLock::new();
    BUILD.get_or_init(name).clone()
}

fn name() -> Name {
    let program = std::env::current_exe().ok();
    let hash = program.as_deref().and_then(|path| hash(path).ok());
    let file = program.as_deref().and_then(Path::file_name);
    let file = file.map_or("program".into(), |file| file.to_string_lossy());
    // If the program cannot be read, each process is a build of its own.
    let hash = hash.unwrap_or_else(|| fastrand::u64(..));
    let named = Name::new(format!("{file}-{hash:016x}"));
    named.unwrap_or_else(|_| Name::stored(format!("program-{hash:016x}")))
}

/// Hashes a file's length and pieces of it, including the first and the last. Two builds of a program differ in far
/// more than one place, and reading all of a large file would delay the start of every engine.
fn hash(path: &Path) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(length);
    let last = length.saturating_sub(PIECE_BYTES);
    let step = (last / (PIECES - 1)).max(PIECE_BYTES);
    let mut at = 0;
    let mut piece = Vec::new();
    loop {
        file.seek(SeekFrom::Start(at))?;
        piece.clear();
        (&mut file).take(PIECE_BYTES).read_to_end(&mut piece)?;
        hasher.write(&piece);
        if at >= last {
            return Ok(hasher.finish());
        }
        at = at.saturating_add(step).min(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_named_by_what_is_in_its_file() {
        // rule 12.4
        assert_eq!(of_this_program(), of_this_program());
        let file = std::env::temp_dir().join(format!("abide-build-{}", std::process::id()));
        let of = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            hash(&file).unwrap()
        };
        let large = vec![7; 3 << 20];
        let mut other = large.clone();
        *other.last_mut().unwrap() = 8;
        let all = [
            of(b""),
            of(b"a"),
            of(b"b"),
            of(&large),
            of(&other),
            of(&large[1..]),
        ];
        let again = [
            of(b""),
            of(b"a"),
            of(b"b"),
            of(&large),
            of(&other),
            of(&large[1..]),
        ];
        std::fs::remove_file(&file).unwrap();
        assert_eq!(all, again, "copies are one build");
        let different: std::collections::BTreeSet<u64> = all.into_iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
