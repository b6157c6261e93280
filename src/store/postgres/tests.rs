use super::replace_nul;

#[test]
fn d5_a_text_is_stored_as_it_is_unless_postgresql_can_t() {
    assert_eq!(replace_nul("a\u{1}\\ü".to_owned()), "a\u{1}\\ü");
    assert_eq!(replace_nul("a\0b".to_owned()), "a\u{FFFD}b");
}
