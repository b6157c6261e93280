use super::*;
use serde_json::json;

const RESTOCK: &str = r#"---
name: restock
description: Buy
  what is low.
inputs:
  type_id: { type: integer, description: "What to buy" }
  quantity: { type: integer, default: 100 }
  side: { choices: [buy, sell], default: buy }
  careful: { type: boolean, default: false }
  note: { required: false }
tools: ["get_*", market_order_create]
autonomy: 1
preflight: true
---
{{ side | title }} {{ quantity }} of {{ type_id }}.
{% if careful %}Be careful.{% endif %}{% if note %}Note: {{ note }}{% endif %}
"#;

fn start(inputs: Value) -> Result<StartedWorkflow, String> {
    let Value::Object(inputs) = inputs else { panic!("inputs are an object") };
    let workflow = Workflow::parse(RESTOCK).unwrap();
    workflow.start(&inputs).map_err(|error| error.to_string())
}

#[test]
fn c3_workflow_is_rendered_with_inputs_and_defaults() {
    let workflow = Workflow::parse(RESTOCK).unwrap();
    assert_eq!(workflow.description, "Buy what is low.");
    let started = start(json!({"type_id": 34})).unwrap();
    assert_eq!(&*started.text, "Buy 100 of 34.");
    assert_eq!(
        Value::Object(started.inputs.clone()),
        json!({"careful": false, "quantity": 100, "side": "buy", "type_id": 34})
    );
    assert!(started.preflight && started.autonomy == Some(Autonomy::Recommendations));
    assert!(started.can_use_tool("get_price") && started.can_use_tool("market_order_create"));
    assert!(!started.can_use_tool("market_order_cancel"));
    // Inputs typed as text are converted.
    let typed = json!({"type_id": "34", "careful": "true", "quantity": " 7 ", "note": "12"});
    assert_eq!(&*start(typed).unwrap().text, "Buy 7 of 34.\nBe careful.Note: 12");
    // An input is inserted as text and never evaluated as a template.
    let template_text = json!({"type_id": 1, "note": "{{ type_id }} {% for"});
    assert!(start(template_text).unwrap().text.ends_with("Note: {{ type_id }} {% for"));
}

#[test]
fn c3_omitted_optional_input_is_rendered_as_empty_text() {
    let file = "---\nname: a\ndescription: b\ninputs:\n  note: { required: false }\n  \
                count: { type: integer, required: false }\n---\n\
                Note: <{{ note }}> {{ count }}{{ note | default('') }}{% if not note %}none{% endif %}.";
    let workflow = Workflow::parse(file).unwrap();
    let render = |inputs: Value| {
        let Value::Object(inputs) = inputs else { panic!("inputs are an object") };
        workflow.start(&inputs).unwrap().text.to_string()
    };
    assert_eq!(render(json!({})), "Note: <> none.");
    assert_eq!(render(json!({"note": null, "count": 2})), "Note: <> 2none.");
    assert_eq!(render(json!({"note": "None"})), "Note: <None> None.");
}

#[test]
fn c3_invalid_input_is_rejected_with_its_name() {
    for (inputs, error) in [
        (json!({}), "type_id: missing; must be an integer"),
        (json!({"type_id": null}), "type_id: missing; must be an integer"),
        (json!({"type_id": "ore"}), "type_id: must be an integer"),
        (json!({"type_id": 1.5}), "type_id: must be an integer"),
        (json!({"type_id": 1, "side": "both"}), "side: must be one of \"buy\", \"sell\""),
        (json!({"type_id": 1, "careful": "yes"}), "careful: must be true or false"),
        (json!({"type_id": 1, "note": ["x"]}), "note: must be a string"),
        (
            json!({"type_id": 1, "amount": 1}),
            "amount: unknown input; known inputs: careful, note, quantity, side, type_id",
        ),
        (
            json!({"type_id": 1, "note": "x".repeat(20_000)}),
            "note: 20000 bytes; the limit is 16384",
        ),
    ] {
        assert_eq!(start(inputs.clone()).unwrap_err(), error, "{inputs}");
    }
}

#[test]
fn c3_invalid_workflow_file_is_rejected_with_reason() {
    let file =
        |head: &str, body: &str| format!("---\nname: a\ndescription: b\n{head}\n---\n{body}");
    for (text, problem) in [
        ("no front matter".to_owned(), "no front matter: the file must start with"),
        (file("tool: [a]", ""), "unknown field"),
        (file("autonomy: 9", ""), "front matter"),
        (file("inputs:\n  a b: {}", ""), "input `a b`"),
        (
            file("inputs:\n  n: { type: integer, default: many }", ""),
            "input `n`: \"many\": must be an integer",
        ),
        (file("inputs:\n  n: { type: date }", ""), "unknown variant"),
        (file("", "{% if x %}"), "template: "),
        (file("", &"x".repeat(70_000)), "bytes; the limit is 65536"),
        ("---\nname: a b\ndescription: c\n---\n".to_owned(), "`name`: must consist of"),
    ] {
        let error = Workflow::parse(&text).unwrap_err();
        assert!(error.contains(problem), "{text}: {error}");
    }
}

#[test]
fn c3_templates_are_bounded_and_read_inputs_only() {
    let render = |body: &str| {
        let text = format!("---\nname: a\ndescription: b\n---\n{body}");
        let workflow = Workflow::parse(&text).unwrap();
        let started = workflow.start(&Map::new());
        started.map(|started| started.text).map_err(|error| error.to_string())
    };
    let endless = "{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}";
    for (body, problem) in [
        (endless, "out of fuel"),
        ("{% for a in range(9000) %}0123456789{% endfor %}", "exceeds 65536 bytes"),
        ("{{ missing }}", "undefined"),
        ("{% include '/etc/passwd' %}", "not found"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
    ] {
        let error = render(body).unwrap_err();
        assert!(error.contains(problem), "{body}: {error}");
    }
    assert_eq!(&*render("{{ range(3) | list | length }}").unwrap(), "3");
}

#[test]
fn c3_command_line_and_inputs_convert_both_ways() {
    for (line, canonical) in [
        ("", "/restock"),
        ("type_id=34", "/restock type_id=34"),
        ("  b=2   a=x=y ", "/restock a=x=y b=2"),
        (
            "note=\"two words, \\\"quoted\\\"\" n=1",
            "/restock n=1 note=\"two words, \\\"quoted\\\"\"",
        ),
        ("empty=", "/restock empty=\"\""),
    ] {
        let inputs = parse_inputs(line).unwrap();
        assert_eq!(format_command("restock", &inputs), canonical, "{line}");
        let rest = canonical.strip_prefix("/restock").unwrap();
        assert_eq!(parse_inputs(rest).unwrap(), inputs, "{line}");
    }
    let Value::Object(typed) = json!({"n": 34, "b": true}) else { panic!() };
    assert_eq!(format_command("a", &typed), "/a b=true n=34");
    for (line, problem) in [
        ("34", "`34`: expected key=value"),
        ("a b=1", "`a`: expected key=value"),
        ("a=\"open", "`a`: the closing quote is missing"),
        ("a=1 a=2", "`a`: given more than once"),
    ] {
        assert_eq!(parse_inputs(line).unwrap_err(), problem);
    }
}
