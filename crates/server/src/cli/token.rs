//! `abide token`: the tokens of a server.

use serde_json::json;

use super::context::Context;
use super::failure::{Exit, Failure, Result};
use super::table::{Table, fixed};
use crate::auth::{self, Role};

/// Create, list and revoke the tokens of a server
///
/// Without any token, a server on loopback accepts every request from this machine, and a server on another address does not start.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  abide token create --role send --name checkout
  abide token list
  abide token revoke checkout")]
pub struct Args {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    /// Create a token and print it; it is not shown again
    #[command(after_help = "Example:\n  abide token create --role work --name mailer")]
    Create {
        /// The role: read, send (signals, updates, events), work (claim, commit), operate (everything)
        #[arg(long, value_enum)]
        role: Role,
        /// Its name [default: the role and a number]
        #[arg(long)]
        name: Option<String>,
    },
    /// List the tokens, without their secrets
    #[command(after_help = "Example:\n  abide token list --json")]
    List,
    /// Revoke a token: servers accept it for at most three more seconds
    #[command(after_help = "Example:\n  abide token revoke mailer")]
    Revoke {
        /// Its name
        name: String,
    },
}

/// Does it.
pub async fn run(args: Args, context: &Context) -> Result {
    let abide = match &args.command {
        TokenCommand::Create { .. } => context.write().await?,
        // Where there is no store, there is no token to list or to revoke.
        TokenCommand::List | TokenCommand::Revoke { .. } => context.open_existing().await?,
    };
    let done = act(args.command, context, &**abide.store()).await;
    abide.close().await;
    done
}

async fn act(command: TokenCommand, context: &Context, store: &dyn abide::store::Store) -> Result {
    let out = &context.out;
    match command {
        TokenCommand::Create { role, name } => {
            let operates = role == Role::Operate || {
                let tokens = auth::list(store).await?;
                tokens.iter().any(|known| known.role == Role::Operate)
            };
            if !operates && context.is_server() {
                let text = "that would be the first token, from which on every call needs one, and only the role operate may make \
                            another: make that first";
                return Err(Failure::new(Exit::Refused, "refused", text)
                    .next("abide token create --role operate"));
            }
            let made = auth::create(store, role, name.as_deref()).await?;
            let known = &made.known;
            if out.json {
                out.document(&json!({"name": known.name, "role": known.role, "created_at": known.created_at, "token": made.token}))?;
            } else {
                out.raw(&format!("{}\n", made.token))?;
                out.say(&format!(
                    "{} has the role {}; it is not shown again",
                    known.name,
                    known.role.name()
                ));
                if !operates {
                    out.say(
                        "servers want a token for every call now, and no token may start or cancel yet: abide token create --role operate",
                    );
                }
            }
        }
        TokenCommand::List => {
            let tokens = auth::list(store).await?;
            if out.json {
                let shown = |known: &auth::Known| json!({"name": known.name, "role": known.role, "created_at": known.created_at});
                out.document(&json!({"items": tokens.iter().map(shown).collect::<Vec<_>>()}))?;
            } else {
                let mut table =
                    Table::new([fixed("name"), fixed("role"), fixed("created").leaves(1)]);
                for known in &tokens {
                    table.row([
                        known.name.to_string(),
                        known.role.name().to_owned(),
                        out.exact(known.created_at),
                    ]);
                }
                table.print(out)?;
            }
        }
        TokenCommand::Revoke { name } => {
            if !auth::revoke(store, &name).await? {
                let text = format!("unknown token {name:?}");
                return Err(Failure::new(Exit::Refused, "not_found", text).next("abide token list"));
            }
            if out.json {
                out.document(&json!({"revoked": name}))?;
            } else {
                out.say(&format!(
                    "{name} is revoked; servers let it in for three seconds more at most"
                ));
            }
        }
    }
    Ok(Exit::Done)
}
