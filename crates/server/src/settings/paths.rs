//! The default paths of the store and of the settings file, and connection strings without secrets.

use std::path::{Path, PathBuf};

/// The user's settings file: `$XDG_CONFIG_HOME/abide/abide.toml`, or `~/.config/abide/abide.toml`.
pub(super) fn default_config() -> Option<PathBuf> {
    directory("XDG_CONFIG_HOME", ".config").map(|home| home.join("abide").join("abide.toml"))
}

/// The default store: a SQLite file in the user's data directory. Returns `None` for a user without a home directory. A
/// file in the current directory would be a new, empty store for each directory that a process is started in.
pub fn default_store() -> Option<String> {
    let home = directory("XDG_DATA_HOME", ".local/share")?;
    let file = home.join("abide").join("abide.db");
    Some(format!("sqlite:{}", file.display()))
}

/// The directory that a variable names, which must be absolute, or else a directory below the user's home.
fn directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    named.filter(|path| path.is_absolute()).or_else(|| {
        let home = std::env::var_os("HOME").map(PathBuf::from)?;
        home.is_absolute().then(|| home.join(below_home))
    })
}

/// Creates the directory of the default store. The directory of any other store must exist, because a misspelled name
/// would otherwise create a directory that is never used.
pub fn prepare(store: &str) -> std::io::Result<()> {
    match store
        .strip_prefix("sqlite:")
        .map(Path::new)
        .and_then(Path::parent)
    {
        Some(parent) if default_store().as_deref() == Some(store) => {
            std::fs::create_dir_all(parent)
        }
        _ => Ok(()),
    }
}

/// A connection string without its password, and without its parameters, which may contain one.
pub fn hidden(url: &str) -> String {
    let (base, settings) = match url.split_once('?') {
        Some((base, _)) => (base, "?…"),
        None => (url, ""),
    };
    let Some((scheme, rest)) = base.split_once("://") else {
        return format!("{base}{settings}");
    };
    match rest.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{scheme}://{user}:…@{host}{settings}"),
            None => format!("{scheme}://{user}@{host}{settings}"),
        },
        None => format!("{base}{settings}"),
    }
}
