//! Where a server listens, and the URLs of its databases.

/// A `postgres://` URL taken apart around the name of the database.
#[derive(Debug, PartialEq)]
pub struct Address {
    /// Scheme, role and host: `postgres://abide@127.0.0.1:5432`.
    base: String,
    /// The database to connect to for creating others.
    admin_database: String,
    /// The part that follows the database: empty, or begins with `?`.
    parameters: String,
}

impl Address {
    /// A cluster of ours.
    pub fn local(port: u16) -> Address {
        Address {
            base: format!("postgres://abide@127.0.0.1:{port}"),
            admin_database: "postgres".into(),
            parameters: String::new(),
        }
    }

    /// A server that somebody else started; the URL may name a database and carry parameters.
    pub fn parse(url: &str) -> Result<Address, String> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err("expected a URL like postgres://role:password@host:5432".into());
        };
        if !matches!(scheme, "postgres" | "postgresql") {
            return Err(format!(
                "expected a URL that begins with postgres://, not {scheme}://"
            ));
        }
        let (location, parameters) = match rest.split_once('?') {
            Some((location, parameters)) => (location, format!("?{parameters}")),
            None => (rest, String::new()),
        };
        let (host, database) = location.split_once('/').unwrap_or((location, ""));
        Ok(Address {
            base: format!("{scheme}://{host}"),
            admin_database: if database.is_empty() {
                "postgres"
            } else {
                database
            }
            .into(),
            parameters,
        })
    }

    /// The database that the URL named.
    pub fn database(&self) -> &str {
        &self.admin_database
    }

    /// The connection string with which pgbouncer reaches a database of this server.
    pub fn for_pgbouncer(&self, database: &str) -> String {
        let rest = self.base.split_once("://").map_or("", |(_, rest)| rest);
        let (role, host) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (role, password) = role.split_once(':').unwrap_or((role, ""));
        let (host, port) = host.rsplit_once(':').unwrap_or((host, "5432"));
        let mut target = format!("host={host} port={port} dbname={database} user={role}");
        if !password.is_empty() {
            target.push_str(&format!(" password={password}"));
        }
        target
    }

    pub fn url(&self, database: &str) -> String {
        format!("{}/{database}{}", self.base, self.parameters)
    }

    /// Of whichever of the two takes writes.
    pub fn url_with(&self, other: &Address, database: &str) -> String {
        let host = other.base.rsplit_once('@').map_or("", |(_, host)| host);
        let (base, writes) = (&self.base, "target_session_attrs=read-write");
        format!("{base},{host}/{database}?{writes}")
    }

    pub fn admin_url(&self) -> String {
        self.url(&self.admin_database)
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn a_database_takes_the_place_of_the_one_in_the_url() {
        for (given, url, admin_url) in [
            (
                "postgres://host",
                "postgres://host/new",
                "postgres://host/postgres",
            ),
            (
                "postgres://a:b@host:1/",
                "postgres://a:b@host:1/new",
                "postgres://a:b@host:1/postgres",
            ),
            (
                "postgresql://host/old",
                "postgresql://host/new",
                "postgresql://host/old",
            ),
            (
                "postgres://a@/old?host=/run/pg&sslmode=disable",
                "postgres://a@/new?host=/run/pg&sslmode=disable",
                "postgres://a@/old?host=/run/pg&sslmode=disable",
            ),
            (
                "postgres://host?a=b",
                "postgres://host/new?a=b",
                "postgres://host/postgres?a=b",
            ),
        ] {
            let address = Address::parse(given).unwrap();
            assert_eq!(address.url("new"), url, "of {given}");
            assert_eq!(address.admin_url(), admin_url, "of {given}");
        }
    }

    #[test]
    fn what_is_not_a_postgres_url_is_refused() {
        assert!(
            Address::parse("host=localhost")
                .unwrap_err()
                .contains("postgres://role")
        );
        assert!(
            Address::parse("mysql://host")
                .unwrap_err()
                .contains("not mysql://")
        );
    }
}
