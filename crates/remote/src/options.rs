//! Options for connecting to a server.

use std::ffi::OsString;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abide_kernel::{Clock, Error, Result};

/// The environment variable that contains the token.
pub const TOKEN: &str = "ABIDE_TOKEN";

/// The environment variable that names a file with the token, as secrets are mounted. [`TOKEN`] takes precedence.
pub const TOKEN_FILE: &str = "ABIDE_TOKEN_FILE";

/// Maximum size of a token file, in bytes.
const TOKEN_BYTES: u64 = 64 << 10;

/// Options for connecting to a server.
#[derive(Clone)]
pub struct Options {
    /// Bearer token for the server. `None` means the value of the environment variable `ABIDE_TOKEN`, or otherwise the
    /// content of the file that `ABIDE_TOKEN_FILE` names. `connect` reads the file once.
    pub token: Option<String>,
    /// Time limit for a response. Default: 30 s. The outcome of a write without a response by then is unknown.
    pub timeout: Duration,
    /// Time during which a write with an unknown outcome is retried. Default: 10 s; zero returns the error at once. All
    /// attempts have the same id, so that the write is carried out once (rule 1.5).
    pub patience: Duration,
    /// Time limit for making a connection. Default: 5 s.
    pub connect_timeout: Duration,
    /// PEM file with the certificates of trusted authorities; `None` means those that the system trusts.
    pub authorities: Option<PathBuf>,
    /// Source of the time; `None` follows the server's clock, because its workers must agree on the time.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Options {
    /// The token to send: that of the options, otherwise of `ABIDE_TOKEN`, otherwise of the file that
    /// `ABIDE_TOKEN_FILE` names. Returns `None` if none of them gives one, and an error if that file cannot be read or
    /// is empty.
    pub fn token(&self) -> Result<Option<String>> {
        match &self.token {
            Some(token) => Ok(trimmed(token)),
            None => token_of(|variable| std::env::var_os(variable)),
        }
    }
}

/// The token from the environment.
fn token_of(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<String>> {
    let token = variable(TOKEN).and_then(|token| trimmed(token.to_str()?));
    match (token, variable(TOKEN_FILE).filter(|path| !path.is_empty())) {
        (None, Some(path)) => read_token(Path::new(&path)).map(Some),
        (token, _) => Ok(token),
    }
}

fn read_token(path: &Path) -> Result<String> {
    let bad = |problem: String| {
        let path = path.display();
        Error::Broken(format!("{TOKEN_FILE} = {path}: {problem}"))
    };
    let unreadable = |error: std::io::Error| bad(format!("cannot be read: {error}"));
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let read = file.take(TOKEN_BYTES + 1).read_to_string(&mut text);
    if read.map_err(unreadable)? as u64 > TOKEN_BYTES {
        return Err(bad(format!("is over the limit of {TOKEN_BYTES} bytes")));
    }
    trimmed(&text).ok_or_else(|| bad("is empty; write a token into it".to_owned()))
}

fn trimmed(token: &str) -> Option<String> {
    let token = token.trim();
    (!token.is_empty()).then(|| token.to_owned())
}

impl Default for Options {
    fn default() -> Self {
        Self {
            token: None,
            timeout: Duration::from_secs(30),
            patience: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            authorities: None,
            clock: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("timeout", &self.timeout)
            .field("patience", &self.patience)
            .field("connect_timeout", &self.connect_timeout)
            .field("authorities", &self.authorities)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_taken_from_the_options_then_the_variable_then_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let written = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.into_os_string()
        };
        let of = |token: &str, file: &OsString| {
            token_of(|variable| match variable {
                TOKEN => Some(token.into()),
                TOKEN_FILE => Some(file.clone()),
                _ => None,
            })
        };
        let file = written("token", "of-the-file\r\n");
        assert_eq!(of("", &file).unwrap().as_deref(), Some("of-the-file"));
        assert_eq!(of("mine", &file).unwrap().as_deref(), Some("mine"));
        assert_eq!(of("", &OsString::new()).unwrap(), None);
        assert_eq!(token_of(|_| None).unwrap(), None);
        let options = Options {
            token: Some(" given ".into()),
            ..Options::default()
        };
        assert_eq!(options.token().unwrap().as_deref(), Some("given"));

        for (bad, expected) in [
            (
                directory.path().join("absent").into_os_string(),
                "cannot be read",
            ),
            (written("empty", " \n"), "is empty"),
            (written("huge", &"x".repeat(70_000)), "65536 bytes"),
        ] {
            let error = of("", &bad).unwrap_err().to_string();
            assert!(
                error.contains(TOKEN_FILE) && error.contains(expected) && !error.contains("xxx"),
                "{error}"
            );
            // The file is not needed if the variable has the token.
            assert_eq!(of("mine", &bad).unwrap().as_deref(), Some("mine"));
        }
    }
}
