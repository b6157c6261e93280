//! Commands that name a session, or make one.

use crate::harness::Desk;
use serde_json::json;

#[tokio::test]
async fn a_session_is_named_by_what_lists_show_of_it() {
    let server = Desk::new().serve().await;
    let answer = server.post("/agent/chat", json!({"message": "stock up"})).await;
    let session = answer["session_id"].as_str().unwrap();
    let short = &session[session.len() - 6..];
    let whole = server.run(&["events", "--session", session]).await;
    assert_eq!(whole.code, 0, "{whole:?}");
    assert!(whole.out.contains(&format!("  {short}  ")), "{whole:?}");
    let named = server.run(&["events", "--session", short]).await;
    assert_eq!((named.code, &named.out), (0, &whole.out), "{named:?}");
    let listed = server.run(&["approvals", "list", "--session", short]).await;
    listed.says(&["Execute 2 tools"]);
    let checked = server.run(&["policy", "check", "--session", short]).await;
    checked.says(&["3 calls of 1 session checked"]);

    for args in [
        &["events", "--session"][..],
        &["approvals", "list", "--session"],
        &["policy", "check", "--session"],
        &["chat", "hello", "--session"],
    ] {
        let none = server.run(&[args, &["ffffff"]].concat()).await;
        assert_eq!(none.code, 2, "{none:?}");
        let why = "no session has an id that ends or begins with `ffffff`";
        assert!(none.err.contains(why), "{none:?}");
        let nonsense = server.run(&[args, &["b0b"]].concat()).await;
        assert_eq!(nonsense.code, 2, "{nonsense:?}");
        assert!(nonsense.err.contains("give at least 6 characters of an id"), "{nonsense:?}");
    }
}

#[tokio::test]
async fn that_there_are_no_keys_is_said() {
    let server = Desk::new().serve().await;
    let none = server.run(&["key", "list"]).await;
    assert_eq!(
        (none.code, none.out.as_str()),
        (0, "There are none; `greenroom key create` makes one.\n")
    );
    assert_eq!(server.run(&["key", "list", "--json"]).await.json(), json!([]));
}
