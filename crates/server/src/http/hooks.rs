//! Webhooks: verified by their signature, then converted to a signal or an event by the rules of the source.

use std::time::{SystemTime, UNIX_EPOCH};

use abide::message::Arguments;
use abide::model::Target;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::signals::signal_response;
use super::{App, PathParams, Problem, received};
use crate::auth::{from_proxy, proxied};
use crate::hooks::{Action, Hook, Scheme, Unproven};

/// Routes that are authenticated by a signature.
pub fn open() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(hook))
}

/// Receive a webhook
///
/// The signature is checked over the unchanged body. The rules of the source then make it a signal or an event, with the
/// response of that. A repeated delivery is a duplicate.
#[utoipa::path(post, path = "/v1/hooks/{source}", tag = "hooks", security(()),
    params(("source" = String, Path, description = "the source, as the settings name it")),
    request_body(content = Object, description = "the body, as the source sends it"),
    responses(
        (status = 200, description = "it was ignored (`ignored: true`), published as an event, or received before", body = Object),
        (status = 202, description = "it was delivered as a signal, or is held for an instance that starts later", body = Object),
        (status = 400, description = "the body has no value where a rule of the source expects one", body = Problem, content_type = "application/problem+json"),
        (status = 401, description = "the signature is wrong, or old; nothing was recorded", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "unknown source, target or signal", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "the signal was refused", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "it is too large", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the arguments of the signal do not match its contract", body = Problem, content_type = "application/problem+json"),
    ))]
async fn hook(
    State(app): State<App>,
    PathParams(source): PathParams<String>,
    request: Request,
) -> Result<Response, Problem> {
    let hook = app.hook(&source).ok_or_else(|| {
        Problem::not_found(format!(
            "unknown source {source:?}: `abide config` shows the [[hooks]] of this server"
        ))
    })?;
    let headers = request.headers().clone();
    // A webhook without a signature is accepted only because it comes from this machine.
    if hook.scheme == Scheme::None
        && let Some(header) = proxied(&headers)
    {
        return Ok(from_proxy(header));
    }
    // The sender is not known before the body is read, so no more is read than a signal may carry.
    let most = app.limits().payload_bytes;
    let (body, ticket) = received(request, most, "payload_bytes").await?;
    hook.verify(&headers, &body, now_s())
        .map_err(|unproven| not_proven(hook, &unproven))?;
    // Not before: a request that is not verified takes no slot.
    if let Some(ticket) = ticket {
        ticket.take_slot()?;
    }
    let text = std::str::from_utf8(&body)
        .map_err(|_| Problem::bad_request("the body is not UTF-8 text"))?;
    if let Some(challenge) = challenge(hook, text) {
        return Ok(axum::Json(json!({ "challenge": challenge })).into_response());
    }
    let action = hook
        .action(&headers, text)
        .map_err(|unmapped| Problem::bad_request(unmapped.to_string()))?;
    match action {
        None => Ok(axum::Json(json!({"ignored": true})).into_response()),
        Some(action) => done(&app, hook, action, &headers).await,
    }
}

fn now_s() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn not_proven(hook: &Hook, unproven: &Unproven) -> Problem {
    tracing::warn!(source = hook.source, %unproven, "webhook refused: signature verification failed");
    let detail = format!(
        "signature verification failed for source `{}`: {unproven}",
        hook.source
    );
    Problem::new(StatusCode::UNAUTHORIZED, "bad_signature", detail)
}

/// The challenge that Slack sends once to verify the URL.
fn challenge(hook: &Hook, body: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Verification {
        r#type: String,
        challenge: String,
    }
    if hook.scheme != Scheme::Slack {
        return None;
    }
    let verification: Verification = serde_json::from_str(body).ok()?;
    (verification.r#type == "url_verification").then_some(verification.challenge)
}

/// Sends the signal, or publishes the event, that the webhook becomes.
async fn done(
    app: &App,
    hook: &Hook,
    action: Action,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    match action {
        Action::Signal {
            name,
            target,
            dedup,
            hold_for,
            payload,
        } => {
            let text = match &target {
                Target::Id(id) => id.to_string(),
                Target::Key(key) => key.to_string(),
            };
            let builder = app
                .abide()
                .signal(target, name.as_str(), Arguments::Payload(payload));
            let mut builder = builder.source(format!("hook:{}", hook.source));
            if let Some(dedup) = dedup {
                builder = builder.dedup(dedup.as_str());
            }
            if let Some(time) = hold_for {
                builder = builder.hold_for(time);
            }
            Ok(signal_response(app, builder.await, &text, headers)?.into_response())
        }
        Action::Event {
            event_type,
            id,
            payload,
        } => {
            let event = app.abide().publish(event_type.as_str(), &payload);
            let event = match id {
                Some(id) => event.event_id(id.as_str()),
                None => event,
            };
            let published = event.await?;
            let answer = json!({
                "event_id": published.event_id,
                "matched": published.matched,
                "duplicate": published.duplicate,
                "unmatched": published.unmatched,
            });
            Ok(axum::Json(answer).into_response())
        }
    }
}
