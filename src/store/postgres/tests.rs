use super::replace_nul;

#[test]
fn d5_text_is_stored_unchanged_except_for_nul() {
    assert_eq!(replace_nul("a\u{1}\\ü".to_owned()), "a\u{1}\\ü");
    assert_eq!(replace_nul("a\0b".to_owned()), "a\u{FFFD}b");
}
