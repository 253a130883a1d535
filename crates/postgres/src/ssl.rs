//! The encryption settings of a connection string: `sslmode` and `sslrootcert`, with the meaning of libpq.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use abide_kernel::{Error, Result};

/// Encryption of a connection (`sslmode`), from the weakest to the strictest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SslMode {
    /// Never encrypts.
    Disable,
    /// Encrypts if the server accepts no other connection.
    Allow,
    /// Encrypts if the server supports it.
    #[default]
    Prefer,
    /// Always encrypts.
    Require,
    /// Always encrypts, and requires a server certificate from a trusted authority.
    VerifyCa,
    /// As `VerifyCa`, and the certificate must be for the host name that was connected to.
    VerifyFull,
}

impl SslMode {
    const ALL: [(&'static str, Self); 6] = [
        ("disable", Self::Disable),
        ("allow", Self::Allow),
        ("prefer", Self::Prefer),
        ("require", Self::Require),
        ("verify-ca", Self::VerifyCa),
        ("verify-full", Self::VerifyFull),
    ];

    fn named(word: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(name, _)| *name == word);
        found.map(|(_, mode)| *mode)
    }
}

/// The trusted authorities, and how strictly a server's certificate is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Accepts any certificate: this protects only against passive eavesdropping.
    Nothing,
    /// Accepts a certificate that an authority in that file has signed.
    Authority(PathBuf),
    /// Accepts a certificate that an authority has signed for the server's name; without a file, an authority that the
    /// system trusts.
    AuthorityAndName(Option<PathBuf>),
}

/// The encryption settings of a connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ssl {
    pub mode: SslMode,
    pub check: Check,
}

/// Value of `sslrootcert` for the authorities that the system trusts.
const SYSTEM: &str = "system";

impl Ssl {
    /// Extracts the encryption settings of a connection string; also returns the string without them. `authorities` is
    /// the file that is trusted unless the string names one; without either, it is `~/.postgresql/root.crt` if that
    /// exists.
    pub fn taken_from(url: &str, authorities: Option<&Path>) -> Result<(String, Self)> {
        let usual = std::env::var_os("HOME").map(PathBuf::from);
        let usual = usual.map(|home| home.join(".postgresql/root.crt"));
        Self::taken(url, authorities, usual.filter(|file| file.is_file()))
    }

    fn taken(
        url: &str,
        authorities: Option<&Path>,
        usual: Option<PathBuf>,
    ) -> Result<(String, Self)> {
        let (mut mode, mut root) = (None, None);
        let mut others = Vec::new();
        // `postgres://host/database?a=b&c=d`, or `host=… a=b c=d`.
        let is_url = url.contains("://");
        let (base, parameters) = match url.split_once('?') {
            Some((base, parameters)) if is_url => (Some(base), parameters),
            _ if is_url => (Some(url), ""),
            _ => (None, url),
        };
        let separator = if is_url { '&' } else { ' ' };
        for parameter in parameters.split(separator).filter(|one| !one.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", value)) => mode = Some(read_mode(value)?),
                Some(("sslrootcert", value)) => root = Some(read_path(value, is_url)?),
                _ => others.push(parameter),
            }
        }
        let mut rest = base.unwrap_or_default().to_owned();
        if is_url && !others.is_empty() {
            rest.push('?');
        }
        rest.push_str(&others.join(separator.encode_utf8(&mut [0; 4])));
        let file = match root {
            Some(file) if file == Path::new(SYSTEM) => {
                // Anyone can get a certificate of a public authority, so such a certificate proves only the name in it.
                let mode = mode.unwrap_or(SslMode::VerifyFull);
                if mode < SslMode::VerifyFull {
                    return Err(wrong(
                        "`sslrootcert=system` is for `sslmode=verify-full`; write that, or name a file".into(),
                    ));
                }
                let check = Check::AuthorityAndName(None);
                return Ok((rest, Self { mode, check }));
            }
            Some(file) => Some(file),
            None => authorities.map(Path::to_owned).or(usual),
        };
        let mode = mode.unwrap_or_default();
        let check = match (mode, file) {
            (SslMode::VerifyFull, file) => Check::AuthorityAndName(file),
            (_, Some(file)) => Check::Authority(file),
            (SslMode::VerifyCa, None) => {
                return Err(wrong(
                    "`sslmode=verify-ca` needs a file of authorities; name one with `sslrootcert=/path/to/root.crt`, or write \
                     `sslmode=verify-full` to trust the system's"
                        .into(),
                ));
            }
            (_, None) => Check::Nothing,
        };
        Ok((rest, Self { mode, check }))
    }
}

fn wrong(why: String) -> Error {
    Error::Broken(format!("invalid database URL: {why}"))
}

fn read_mode(value: &str) -> Result<SslMode> {
    SslMode::named(value).ok_or_else(|| {
        let names: Vec<&str> = SslMode::ALL.iter().map(|(name, _)| *name).collect();
        wrong(format!(
            "`sslmode` is {value:?}; write one of {}",
            names.join(", ")
        ))
    })
}

/// Parses a path. In a URL it is percent-encoded, with `%20` for a space.
fn read_path(value: &str, is_url: bool) -> Result<PathBuf> {
    let path: Cow<'_, str> = match is_url {
        true => percent_encoding::percent_decode_str(value)
            .decode_utf8()
            .map_err(|_| wrong("`sslrootcert` is not UTF-8 text".into()))?,
        false => value.trim_matches('\'').into(),
    };
    match path.is_empty() {
        true => Err(wrong(
            "`sslrootcert` is empty; name a file, or leave it out".into(),
        )),
        false => Ok(PathBuf::from(path.as_ref())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parameters: &str) -> Result<(String, Ssl)> {
        Ssl::taken(&format!("postgres://u:secret@h/d{parameters}"), None, None)
    }

    fn ssl(mode: SslMode, check: Check) -> Ssl {
        Ssl { mode, check }
    }

    #[test]
    fn each_mode_checks_as_much_as_libpq_does() {
        let file = || PathBuf::from("/etc/my ca.pem");
        let root = "&sslrootcert=%2Fetc%2Fmy%20ca.pem";
        for (word, mode) in SslMode::ALL {
            let (_, found) = read(&format!("?sslmode={word}{root}")).unwrap();
            let check = match mode {
                SslMode::VerifyFull => Check::AuthorityAndName(Some(file())),
                // A file of authorities makes all other modes as strict as `verify-ca`.
                _ => Check::Authority(file()),
            };
            assert_eq!(found, ssl(mode, check), "{word}");
        }
        for (word, mode) in SslMode::ALL {
            let found = read(&format!("?sslmode={word}"));
            match mode {
                SslMode::VerifyCa => {
                    assert!(found.unwrap_err().to_string().contains("sslrootcert"));
                }
                SslMode::VerifyFull => {
                    let check = Check::AuthorityAndName(None);
                    assert_eq!(found.unwrap().1, ssl(mode, check));
                }
                _ => assert_eq!(found.unwrap().1, ssl(mode, Check::Nothing)),
            }
        }
        assert_eq!(read("").unwrap().1, ssl(SslMode::Prefer, Check::Nothing));
    }

    #[test]
    fn the_systems_authorities_vouch_for_a_name_only() {
        let (_, found) = read("?sslrootcert=system").unwrap();
        assert_eq!(
            found,
            ssl(SslMode::VerifyFull, Check::AuthorityAndName(None))
        );
        for weak in ["disable", "prefer", "require", "verify-ca"] {
            let refused = read(&format!("?sslmode={weak}&sslrootcert=system"));
            let text = refused.unwrap_err().to_string();
            assert!(
                text.contains("verify-full") && !text.contains("secret"),
                "{text}"
            );
        }
    }

    #[test]
    fn the_file_of_the_options_or_the_usual_one_is_trusted_unless_another_is_named() {
        let (given, usual) = (Path::new("/given"), PathBuf::from("/usual"));
        let check = |url: &str, given: Option<&Path>| {
            Ssl::taken(url, given, Some(usual.clone())).unwrap().1.check
        };
        let url = "postgres://h/d?sslmode=require";
        assert_eq!(check(url, None), Check::Authority(usual.clone()));
        assert_eq!(check(url, Some(given)), Check::Authority(given.into()));
        let named = "postgres://h/d?sslrootcert=/named";
        assert_eq!(check(named, Some(given)), Check::Authority("/named".into()));
    }

    #[test]
    fn the_rest_of_the_string_is_left_as_it_is() {
        for (given, rest) in [
            ("postgres://h/d", "postgres://h/d"),
            ("postgres://h/d?sslmode=require", "postgres://h/d"),
            (
                "postgres://h/d?a=b&sslmode=require&c=d%20e",
                "postgres://h/d?a=b&c=d%20e",
            ),
            (
                "host=h sslmode=verify-full sslrootcert='/x' dbname=d",
                "host=h dbname=d",
            ),
        ] {
            assert_eq!(Ssl::taken(given, None, None).unwrap().0, rest, "{given}");
        }
        let (_, found) = Ssl::taken("host=h sslmode=require", None, None).unwrap();
        assert_eq!(found.mode, SslMode::Require);
    }

    #[test]
    fn a_mode_that_does_not_exist_is_refused_without_the_password() {
        for bad in ["?sslmode=verify", "?sslmode=", "?sslrootcert="] {
            let text = read(bad).unwrap_err().to_string();
            assert!(
                text.contains("sslmode") || text.contains("sslrootcert"),
                "{text}"
            );
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
