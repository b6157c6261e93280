//! Fuzz tests of the rehearsal's decoders: requests in both wire formats and script files. No input
//! causes a panic, and a rejected input has a reason.

use super::{Script, anthropic, openai, reply};
use crate::hostile_input;
use proptest::prelude::*;
use std::sync::LazyLock;

const REQUESTS: &[&str] = &[
    r#"{"model":"m","max_tokens":9000,"stream":true,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"a","name":"f","input":{"n":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"{\"n\":1}"}],"is_error":true}]}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"auto"},"thinking":{"type":"enabled","budget_tokens":2048}}"#,
    r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":5,"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"buy 5 Tritanium"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"n\":1}"}}]},{"role":"tool","tool_call_id":"a","content":"[1]"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}"#,
];

const SCRIPTS: &[&str] = &[
    "require_key = true\n[[rule]]\nuser = \"(?i)buy (\\\\d+) (\\\\w+)\"\nstep = 0\noffers = \"f\"\n\
     [[rule.reply]]\ntext = \"I buy {{ match[1] }}.\"\n[[rule.reply]]\nfor_each = \"[1, 2]\"\n\
     tool_call = { name = \"f\", arguments = { n = \"{{ item }}\" } }\n",
    "[[rule]]\nresult = \"error\"\nresult_matches = \"x+\"\nstop = \"length\"\n\
     usage = { input = 5, output = 7 }\n[[rule.reply]]\nthinking = \"hm\"\n[[rule.fault]]\nstatus = 529\n",
];

proptest! {
    #[test]
    fn m5_requests_of_both_wires_are_answered_or_rejected(
        request in hostile_input::json(REQUESTS),
    ) {
        static TOUR: LazyLock<Script> =
            LazyLock::new(|| Script::tour().expect("the built-in script is valid"));
        for decoded in [anthropic::decode(&request), openai::decode(&request)] {
            match decoded {
                Ok(prompt) => {
                    let reply = match reply::find_rule(&TOUR, &prompt) {
                        Some((_, rule)) => reply::render_reply(rule, &prompt),
                        None => reply::echo_reply(&prompt),
                    };
                    prop_assert!(!reply.parts.is_empty());
                }
                Err(error) => {
                    prop_assert!((400..500).contains(&error.status) && !error.message.is_empty());
                }
            }
        }
    }

    #[test]
    fn m5_scripts_are_compiled_or_rejected(text in hostile_input::text(SCRIPTS)) {
        if let Err(error) = Script::parse(&text) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
