//! Encrypted connections with rustls, trusting the authorities of the system, or those in a file.

use std::path::Path;
use std::sync::Arc;

use abide_kernel::{Error, Result};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Trusts the authorities in a PEM file, or, without one, those that the system trusts. The server's certificate and
/// its name are always checked.
pub(crate) fn trusting(authorities: Option<&Path>) -> Result<ClientConfig> {
    let unusable = |why: String| Error::Broken(format!("TLS cannot be set up: {why}"));
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(file) => {
            let wrong = |error| unusable(format!("{}: {error}", file.display()));
            for certificate in CertificateDer::pem_file_iter(file).map_err(wrong)? {
                let added = roots.add(certificate.map_err(wrong)?);
                added.map_err(|error| unusable(format!("{}: {error}", file.display())))?;
            }
        }
        // Some certificates of the system are usually not accepted by rustls; they are skipped.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(unusable(
            "no certificates of authorities were found: install the system's (the Debian package is `ca-certificates`), or \
             name a file of them"
                .into(),
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// Trusts no authority: for servers without encryption.
pub(crate) fn trusting_none() -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| Error::Broken(format!("TLS cannot be set up: {error}")))?;
    Ok(config
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}
