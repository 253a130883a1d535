//! Where the store and the file are unless somebody says, and connection strings as they may be shown.

use std::path::{Path, PathBuf};

/// The user's own settings file: `$XDG_CONFIG_HOME/abide/abide.toml`, or `~/.config/abide/abide.toml`.
pub(super) fn default_config() -> Option<PathBuf> {
    directory("XDG_CONFIG_HOME", ".config").map(|home| home.join("abide").join("abide.toml"))
}

/// The store unless somebody names one: a SQLite file in the user's data directory.
pub fn default_store() -> String {
    let home = directory("XDG_DATA_HOME", ".local/share").unwrap_or_else(|| PathBuf::from("."));
    format!("sqlite:{}", home.join("abide").join("abide.db").display())
}

/// A directory by its variable, which must be absolute to count, or below the user's home.
fn directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    named.filter(|path| path.is_absolute()).or_else(|| {
        let home = std::env::var_os("HOME").map(PathBuf::from)?;
        home.is_absolute().then(|| home.join(below_home))
    })
}

/// Makes the directory of the default store. That of a store that somebody has named must be there: a slip of the pen
/// would make one that nobody looks into.
pub fn prepare(store: &str) -> std::io::Result<()> {
    match store
        .strip_prefix("sqlite:")
        .map(Path::new)
        .and_then(Path::parent)
    {
        Some(parent) if store == default_store() => std::fs::create_dir_all(parent),
        _ => Ok(()),
    }
}

/// A connection string as it may be shown: without a password, and without settings, which may hold one.
pub fn hidden(url: &str) -> String {
    let (place, settings) = match url.split_once('?') {
        Some((place, _)) => (place, "?…"),
        None => (url, ""),
    };
    let Some((scheme, rest)) = place.split_once("://") else {
        return format!("{place}{settings}");
    };
    match rest.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{scheme}://{user}:…@{host}{settings}"),
            None => format!("{scheme}://{user}@{host}{settings}"),
        },
        None => format!("{place}{settings}"),
    }
}
