//! The address of a server.

use abide_kernel::{Error, Result, wire};
use hyper::Uri;

/// The address of a server, and its endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// The form for error messages.
    pub shown: String,
    /// The endpoint for requests.
    pub rpc: Uri,
    /// The endpoint for notifications.
    pub notifications: Uri,
}

impl Address {
    /// Parses a URL. A URL with a password or query parameters is refused, and not shown, because URLs end up in logs.
    pub fn new(url: &str) -> Result<Self> {
        let unusable = |problem: &str| {
            Error::Broken(format!(
                "the address of the server cannot be used: {problem}; write https://host or https://host:port/path"
            ))
        };
        if url.contains('@') {
            return Err(unusable(
                "it contains a user or a password, and addresses are written to logs: put the token into ABIDE_TOKEN, \
                 or give it in the options",
            ));
        }
        if url.contains(['?', '#']) {
            return Err(unusable(
                "it has a ? or a # in it, and nothing may follow its path",
            ));
        }
        let base = url.trim_end_matches('/');
        let at = |path: &str| format!("{base}{path}").parse::<Uri>();
        let (Ok(rpc), Ok(notifications)) = (at(wire::PATH), at(wire::NOTIFICATIONS)) else {
            return Err(unusable(&format!("{url:?} is not a URL")));
        };
        if !matches!(rpc.scheme_str(), Some("http" | "https")) {
            return Err(unusable(&format!(
                "{url:?} begins with neither http:// nor https://"
            )));
        }
        if rpc.host().is_none_or(str::is_empty) {
            return Err(unusable(&format!("{url:?} names no host")));
        }
        Ok(Self {
            shown: base.to_owned(),
            rpc,
            notifications,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_port_and_a_path() {
        for (url, rpc) in [
            ("http://localhost", "http://localhost/rpc/v1"),
            ("https://a.example:8443/", "https://a.example:8443/rpc/v1"),
            ("https://[::1]:80/a/b/", "https://[::1]:80/a/b/rpc/v1"),
        ] {
            assert_eq!(Address::new(url).unwrap().rpc.to_string(), rpc);
        }
    }

    #[test]
    fn an_invalid_address_is_refused_and_no_secret_is_shown() {
        for url in [
            "",
            "localhost",
            "ftp://host",
            "http://",
            "http:///x",
            "http://a b",
        ] {
            let error = Address::new(url).unwrap_err().to_string();
            assert!(error.contains("https://host"), "{url}: {error}");
        }
        for url in [
            "http://me:secret@host",
            "http://host?token=secret",
            "http://host#secret",
        ] {
            let error = Address::new(url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let error = Address::new("http://me:secret@host").unwrap_err();
        assert!(error.to_string().contains("ABIDE_TOKEN"), "{error}");
    }
}
