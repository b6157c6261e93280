//! Fuzz tests of the core's decoders of outside input: no input causes a panic, every error is
//! bounded, and a decoded value keeps its meaning when it is encoded again. `model_fuzz` covers the
//! streams of models. `PROPTEST_CASES` sets the number of cases.

#[path = "../../../tests/support/hostile_input.rs"]
mod hostile_input;

use greenroom_core::{
    Timestamp,
    approval::{Elicitation, ElicitationMode, validate_no_placeholders},
    context::{
        skill::SkillFile,
        workflow::{self, Workflow},
    },
    cursor::Cursor,
    duration::{ConfigDuration, DurationLimit},
    ids::{AgentName, CallId, MessageId, SessionId, ToolName, UserId},
    json::{Digest, is_deeper, to_canonical_json},
    message::{Arguments, AssistantMessage, ProposedCall},
    model::{failure, openai},
    policy::{
        BudgetLimit, Constraint, Matrix, Settings, SettingsPatch, catalog::CatalogEntry, schema,
    },
    preflight::{PreflightPlan, SUBMIT_PLAN_TOOL},
    session::EventRecord,
    trace_context::TraceContext,
    uri::has_dot_segment,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{fmt::Display, str::FromStr};
use uuid::Uuid;

/// Maximum bytes of an error about a scalar.
const SCALAR_ERROR_BYTES_MAX: usize = 512;

/// Nesting depth that the JSON parser accepts.
const PARSER_LEVELS_MAX: u32 = 127;

const SCALARS: &[&str] = &[
    "7.300",
    "18446744073709551615.18446744073709551615",
    "0198c0de-0000-7000-8000-000000000001",
    "ann@example.com",
    "market_order_create",
    "30s",
    "876600h",
    "none",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "2026-09-21T14:13:20.250Z",
    "9999-12-31T23:59:60+23:59",
    "bb82030dbc2bcaba32a90bf2e207a84a856fc5f033b77c480836ab6f77f40f19",
    "file:///handbook/%252e%252E/secret.md",
];

const FRONT_MATTER: &[&str] = &[
    "---\nname: haul\ndescription: Plans a haul: with care\n---\nText",
    "---\nname: \"a.b\"\ndescription: >\n  folded\n  text\nlicense: MIT\nmetadata: {a: [1, 2]}\n---\n# Body\n",
    "---\nname: restock\ndescription: Restocks\ninputs:\n  goods:\n    type: string\n    default: ore\n  \
     n:\n    type: integer\n    choices: [1, 2]\ntools: [\"get_*\"]\nautonomy: 1\npreflight: true\n---\n\
     Buy {{ n }} of {{ goods }}{% if n > 1 %}s{% endif %}. {% for i in range(3) %}{{ i }}{% endfor %}",
    "---\nname: &a x\ndescription: *a\n---\n",
    "---\n- a\n- !!binary x\n? b\n---\n",
];

const INPUTS: &[&str] = &["goods=ore n=5", "text=\"two \\\"words\\\"\" x= y=\"\"", "=1 a=b=c"];

const EVENTS: &[&str] = &[
    r#"{"seq":1,"at":"2026-09-21T14:13:20.250Z","type":"session_created","payload":{"owner":"ann","agent":"trader","settings":{"autonomy_level":1,"require_confirmation":true,"blocked_tools":[],"allowed_regions":null,"budget_limit":null}}}"#,
    r#"{"seq":6,"at":"2026-09-21T14:13:20.750Z","run_id":"01a0c450-6df4-7728-ac7a-8002084e39cf","step":1,"type":"message_completed","payload":{"message_id":"01a0c450-6df4-7169-81ae-189da1dadaab","text":"It is done.","reasoning":[{"kind":"thinking","text":"hm","signature":"sig"},{"kind":"redacted","payload":"opaque"}],"stop_reason":"end_turn"}}"#,
];

const CONFIGURATION: &[&str] = &[
    r#"{"autonomy_level":2,"require_confirmation":false,"blocked_tools":["a"],"allowed_regions":[1],"budget_limit":{"usd":5,"period":"day"},"preflight":true}"#,
    r#"{"preset":"strict","L0":{"low":"deny"},"L2":{"critical":"ask","moderate":"allow"}}"#,
    r#"{"risk":"write_high_risk","idempotent":true,"timeout":"30s","retry":{"max":2,"base":"1s"},"constraints":["args.n > 5",{"allow_if":"args.n < 9","reason":"x"}],"cost":"args.n * args.price","cost_unit":"ISK","exclusive":"args.k"}"#,
    r#"{"allow_if":"args.price * 2.0 > 10.0 && args.region_id in user.allowed_regions","reason":"r"}"#,
    r#"{"tokens":1000,"period":"month"}"#,
    r#"{"allowed_regions":null,"budget_limit":null}"#,
];

const SCHEMAS: &[&str] = &[
    r##"{"type":"object","properties":{"n":{"type":"integer","minimum":1},"e":{"type":"string","format":"email"},"k":{"enum":["a","b"]}},"required":["n"],"additionalProperties":false}"##,
    r##"{"$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/t"}}},"properties":{"t":{"$ref":"#/$defs/t"}}}"##,
    r##"{"properties":{"p":{"type":"string","pattern":"^(a+)+$","maxLength":9}},"anyOf":[{"not":{}},true]}"##,
];

const VALUES: &[&str] = &[
    r#"{"n":5,"e":"a@b.example","k":"a","t":[[[]]],"p":"aaa"}"#,
    r#"{"token":"[redacted]","list":["[redacted]",{"a":"{\"b\":\"[redacted]\"}"}],"n":1.50}"#,
];

const PLANS: &[&str] = &[
    r#"{"steps":[{"description":"look","tool":"get_orders"},{"toolName":"buy","arguments":{"n":1}}],"warnings":["careful"]}"#,
    r#"{"steps":[{"description":"","tool_name":" "}],"warnings":[]}"#,
];

const MODEL_LISTS: &[&str] = &[
    r#"{"object":"list","data":[{"id":"Qwen/Qwen3-8B","max_model_len":40960,"permission":[]}]}"#,
    r#"{"object":"list","data":[{"id":"qwen3:8b","owned_by":"library"},{"id":"a"},{"id":"a"}]}"#,
    r#"{"object":"list","data":null}"#,
    r#"{"error":{"message":"model \"x\" not found","code":"model_not_found"}}"#,
];

/// Asserts that a decoded scalar is decoded from its own text, and that an error is bounded.
fn check_scalar<T>(text: &str)
where
    T: FromStr<Err: Display> + Display + PartialEq,
{
    match text.parse::<T>() {
        Ok(value) => {
            assert!(value.to_string().parse().is_ok_and(|again: T| again == value), "{text}")
        }
        Err(error) => check_error(&error),
    }
}

fn check_error(error: &impl Display) {
    let error = error.to_string();
    assert!(!error.is_empty() && error.len() <= SCALAR_ERROR_BYTES_MAX, "{error}");
}

/// Asserts that a decoded value is decoded from its own JSON.
fn check_json<T: DeserializeOwned + Serialize + PartialEq>(value: &Value) {
    if let Ok(decoded) = T::deserialize(value) {
        let text = serde_json::to_string(&decoded).expect("encodes");
        let again: T = serde_json::from_str(&text).expect("decodes its own JSON");
        assert!(again == decoded, "{value}");
    }
}

proptest! {
    #[test]
    fn x4_scalars_round_trip_or_yield_bounded_errors(text in hostile_input::text(SCALARS)) {
        check_scalar::<Cursor>(&text);
        check_scalar::<SessionId>(&text);
        check_scalar::<ConfigDuration>(&text);
        check_scalar::<DurationLimit>(&text);
        check_scalar::<TraceContext>(&text);
        check_scalar::<UserId>(&text);
        check_scalar::<MessageId>(&text);
        check_scalar::<ToolName>(&text);
        check_scalar::<AgentName>(&text);
        check_json::<Timestamp>(&text.as_str().into());
        check_json::<Digest>(&text.as_str().into());
        has_dot_segment(&text);
    }

    #[test]
    fn c2_c3_front_matter_yields_files_or_errors(
        text in hostile_input::text(FRONT_MATTER),
        inputs in hostile_input::text(INPUTS),
    ) {
        if let Err(error) = SkillFile::parse(&text) {
            prop_assert!(!error.is_empty());
        }
        let inputs = workflow::parse_inputs(&inputs);
        let workflow = Workflow::parse(&text);
        if let (Ok(workflow), Ok(inputs)) = (&workflow, &inputs) {
            workflow.start(inputs).ok();
        }
    }

    #[test]
    fn m1_model_lists_yield_bounded_distinct_names(text in hostile_input::text(MODEL_LISTS)) {
        if let Some(names) = openai::parse_model_list(text.as_bytes()) {
            prop_assert!(names.is_sorted_by(|name, next| name < next));
            let is_valid =
                |name: &String| (1..=openai::MODEL_NAME_BYTES_MAX).contains(&name.len());
            prop_assert!(names.iter().all(is_valid));
        }
        failure::is_unknown_model(404, text.as_bytes());
    }

    #[test]
    fn d7_event_records_round_trip(value in hostile_input::json(EVENTS)) {
        check_json::<EventRecord>(&value);
    }

    #[test]
    fn g4_settings_and_policy_round_trip(value in hostile_input::json(CONFIGURATION)) {
        check_json::<Settings>(&value);
        check_json::<SettingsPatch>(&value);
        check_json::<BudgetLimit>(&value);
        Matrix::deserialize(&value).ok();
        CatalogEntry::deserialize(&value).ok();
        Constraint::deserialize(&value).ok();
    }

    #[test]
    fn t2_schemas_and_forms_yield_answers_or_problems(
        schema in hostile_input::json(SCHEMAS),
        value in hostile_input::json(VALUES),
    ) {
        if let Ok(validator) = schema::compile(&schema) {
            prop_assert_eq!(validator.is_valid(&value), validator.validate(&value).is_ok());
            schema::arguments_depth_max(&schema);
        }
        let elicitation =
            Elicitation { message: "fill in".to_owned(), mode: ElicitationMode::Form { schema } };
        if let Ok(elicitation) = elicitation.validated() {
            elicitation.validate_answer(&value).ok();
        }
    }

    #[test]
    fn e7_edited_arguments_are_compared_with_any_original(
        original in hostile_input::json(VALUES),
        edited in hostile_input::json(VALUES),
    ) {
        prop_assert!(validate_no_placeholders(&edited, &edited).is_ok());
        validate_no_placeholders(&original, &edited).ok();
        let canonical = to_canonical_json(&edited);
        // The parser rejects a value that is nested deeper.
        if !is_deeper(&edited, PARSER_LEVELS_MAX) {
            let again: Value = serde_json::from_str(&canonical).expect("canonical text is JSON");
            prop_assert_eq!(&to_canonical_json(&again), &canonical);
        }
    }

    #[test]
    fn g13_submitted_plans_yield_steps_or_bounded_errors(plan in hostile_input::json(PLANS)) {
        let call = ProposedCall {
            call_id: CallId(Uuid::nil()),
            provider_id: String::new(),
            tool: SUBMIT_PLAN_TOOL.to_owned(),
            arguments: Arguments::Json(plan),
        };
        let message = AssistantMessage { calls: vec![call], ..AssistantMessage::default() };
        match PreflightPlan::from_message(&message) {
            Ok(plan) => prop_assert!(!plan.steps.is_empty()),
            Err(error) => check_error(&error),
        }
    }
}
