//! Tests are not read by users, so their texts are not checked.

#[test]
fn x1_answer_names_the_user() {
    assert_eq!(answer("a person"), "somebody");
}
