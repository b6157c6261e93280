//! `choose_hangar`: the tool that requests input from the user (elicitation), in both protocol lifecycles.
//! Since 2026-07-28 the result of the call names the input it needs, and the client repeats the call
//! with it; before, the server sends a request of its own during the call.

use rmcp::{
    ErrorData, RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ElicitRequest,
        ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, InputRequest,
        InputRequests, InputRequiredResult, InputResponses, ProtocolVersion,
    },
    service::RequestContext,
};
use serde_json::{Value, json};

use crate::{arguments::TypeArgs, errors::ToolError, faults::Faults, market::Market};

/// Key of the elicitation in the protocol messages.
const ELICITATION_KEY: &str = "hangar";
/// The hangars that the user may choose.
const HANGARS: [&str; 3] = ["north", "south", "frozen"];

/// Requests the hangar, or returns the result of the answer.
pub(crate) async fn choose_hangar(
    market: &Market,
    faults: &Faults,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let arguments = request.arguments.unwrap_or_default();
    let args: TypeArgs = match serde_json::from_value(Value::Object(arguments.clone())) {
        Ok(args) => args,
        Err(error) => {
            let (tool, problem) = ("choose_hangar".to_owned(), error.to_string());
            return Ok(ToolError::InvalidArguments { tool, problem }.into_result().into());
        }
    };
    let item = match market.item(args.type_id.get()) {
        Ok(item) => item.name.clone(),
        Err(error) => return Ok(error.into_result().into()),
    };
    if context.client_capabilities().is_none_or(|client| client.elicitation.is_none()) {
        return Ok(error_response("the client does not support elicitation".to_owned()));
    }
    let elicitation = build_elicitation(&item)?;
    let is_stateless =
        context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    let answer = match (is_stateless, request.input_responses) {
        (true, None) => {
            let request = InputRequest::Elicitation(ElicitRequest::new(elicitation));
            let requests = InputRequests::from([(ELICITATION_KEY.to_owned(), request)]);
            return Ok(InputRequiredResult::from_input_requests(requests).into());
        }
        (true, Some(mut responses)) => {
            let response = responses.remove(ELICITATION_KEY).unwrap_or_default();
            serde_json::from_value::<ElicitResult>(response)
                .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?
        }
        (false, _) => tokio::select! {
            answer = context.peer.create_elicitation(elicitation) => {
                let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                let answers = InputResponses::from([(ELICITATION_KEY.to_owned(), json!(answer))]);
                faults.log("choose_hangar", &arguments, &context.meta, Some(&answers));
                answer
            }
            () = context.ct.cancelled() => return Ok(error_response("cancelled".to_owned())),
        },
    };
    Ok(response_from_answer(&item, args.type_id.get(), answer))
}

fn response_from_answer(item: &str, type_id: u32, answer: ElicitResult) -> CallToolResponse {
    let content = answer.content.unwrap_or_default();
    match (answer.action, content[ELICITATION_KEY].as_str()) {
        (ElicitationAction::Accept, Some(hangar)) if HANGARS.contains(&hangar) => {
            let crates = content["crates"].as_u64().unwrap_or(1);
            let chosen =
                json!({"type_id": type_id, "item": item, "hangar": hangar, "crates": crates});
            CallToolResult::structured(chosen).into()
        }
        (ElicitationAction::Accept, _) => error_response(format!("unknown hangar for {item}")),
        (ElicitationAction::Decline, _) => {
            error_response(format!("the user declined to choose a hangar for {item}"))
        }
        _ => error_response(format!("no hangar was chosen for {item}")),
    }
}

fn error_response(error: String) -> CallToolResponse {
    ToolError::Scripted(error).into_result().into()
}

fn build_elicitation(item: &str) -> Result<ElicitRequestParams, ErrorData> {
    let schema = json!({
        "type": "object",
        "properties": {
            "hangar": {
                "type": "string", "title": "Hangar", "description": "Storage location",
                "enum": HANGARS,
            },
            "crates": {
                "type": "integer", "title": "Crates", "minimum": 1, "maximum": 99, "default": 1,
            },
        },
        "required": ["hangar"],
    });
    let requested_schema: ElicitationSchema = serde_json::from_value(schema)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let message = format!("Which hangar shall {item} go to?");
    Ok(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}
