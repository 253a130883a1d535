//! `abide migrate`: brings the tables of a store up to date, or prints how that is done.

use serde_json::json;

use super::context::Context;
use super::failure::{Exit, Failure, Result};

/// Bring the tables of a store up to date, or print the SQL that would
///
/// Servers and workers do this by themselves when they start. This is for those who want to look first, or whose programs
/// may not change tables.
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide migrate --plan\n",
    "  abide migrate --plan --store postgres://abide@db/orders | psql postgres://abide@db/orders\n",
    "  abide migrate --schema --store postgres://abide@db/orders > schema.sql\n",
    "  abide migrate"
))]
pub struct Args {
    /// Print the SQL that would run, without running it
    #[arg(long)]
    plan: bool,
    /// Print the whole schema as SQL, whatever the store already has
    #[arg(long, conflicts_with = "plan")]
    schema: bool,
}

/// The version of a store's tables, the newest version, and the statements between them.
struct Stand {
    version: i64,
    newest: i64,
    plan: String,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let out = context.out;
        if self.schema {
            let schema = script(context, 0)?;
            match out.json {
                true => out.document(&json!({"sql": schema}))?,
                false => out.raw(&schema)?,
            }
            return Ok(Exit::Done);
        }
        let stand = stand(context).await?;
        let Stand {
            version,
            newest,
            plan,
        } = &stand;
        if !self.plan {
            context.write().await?;
        }
        if out.json {
            let (field, done) = if self.plan {
                ("sql", false)
            } else {
                ("applied", true)
            };
            let mut answer = json!({"version": version, "newest": newest});
            if let Some(fields) = answer.as_object_mut() {
                let value = if done {
                    json!(newest - version)
                } else {
                    json!(plan)
                };
                fields.insert(field.to_owned(), value);
            }
            out.document(&answer)?;
            return Ok(Exit::Done);
        }
        match (version == newest, self.plan) {
            (true, _) => out.say(&format!(
                "the tables have version {version}, the newest: nothing is to be done"
            )),
            (false, true) => {
                out.raw(plan)?;
                out.say(&format!(
                    "from version {version} to {newest}; to do it: abide migrate"
                ));
            }
            (false, false) => out.say(&format!(
                "the tables had version {version}, and have {newest} now"
            )),
        }
        Ok(Exit::Done)
    }
}

async fn stand(context: &Context) -> Result<Stand> {
    let version = match context.file() {
        Some(file) => {
            let read =
                tokio::task::spawn_blocking(move || abide::sqlite::schema_version(file)).await;
            let read =
                read.map_err(|_| abide::Error::Broken("looking at the file panicked".into()))?;
            i64::from(read.map_err(unreachable_store)?)
        }
        None if context.is_postgres() => {
            let options = abide::postgres::Options::default();
            let version = abide::postgres::schema_version(&context.store, &options).await;
            version.map_err(unreachable_store)?
        }
        None => 0,
    };
    let newest = match context.is_postgres() {
        true => abide::postgres::migrations()
            .last()
            .map_or(0, |last| i64::from(last.version)),
        false => abide::sqlite::migrations()
            .last()
            .map_or(0, |last| i64::from(last.version)),
    };
    Ok(Stand {
        version,
        newest,
        plan: script(context, version)?,
    })
}

fn unreachable_store(error: abide_kernel::Error) -> Failure {
    abide::store::OpenError::from(abide::Error::from(error)).into()
}

/// The statements from a version to the newest.
fn script(context: &Context, version: i64) -> Result<String> {
    if context.is_postgres() {
        return Ok(abide::postgres::plan(version));
    }
    if context.file().is_some() {
        return Ok(abide::sqlite::plan(
            u32::try_from(version).unwrap_or(u32::MAX),
        ));
    }
    let text = match context.is_server() {
        true => "a server brings the tables of its store up to date by itself, when it starts",
        false => "this store has no tables",
    };
    Err(Failure::new(Exit::Refused, "no_database", text)
        .next("abide migrate --plan --store postgres://USER@HOST/DATABASE"))
}
