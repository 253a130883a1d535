//! A pgbouncer before a database.

use abide_pgtest::{Bouncer, psql, server};

#[test]
fn statements_go_through_it_and_sessions_do_not() {
    let url = server().fresh_database();
    let bouncer = Bouncer::before(&url);
    assert_ne!(bouncer.url(), url);
    psql(
        bouncer.url(),
        "create table t (n int); insert into t values (42)",
    );
    assert_eq!(psql(&url, "select n from t"), "42");
}
