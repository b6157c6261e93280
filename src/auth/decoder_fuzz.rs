//! Fuzz tests of credentials: no text causes a panic, and only issued credentials are accepted.

use super::{
    admin_token::AdminToken,
    api_key::hash_key,
    browser_cookie::{CookieSigner, CredentialRef},
};
use crate::hostile_input;
use greenroom_core::Timestamp;
use proptest::prelude::*;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

const CREDENTIALS: &[&str] = &[
    TOKEN,
    "gr_Hey8zL9O0123456789abcdefghijklmnopqrstuvwxyzAB",
    "1790000000000.admin.0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "1790000000000.bb82030dbc2bcaba32a90bf2e207a84a856fc5f033b77c480836ab6f77f40f19.00",
];

proptest! {
    #[test]
    fn x1_texts_are_no_credentials(text in hostile_input::text(CREDENTIALS)) {
        let token = AdminToken::parse(TOKEN).expect("a valid token");
        prop_assert_eq!(token.matches(&text), text == TOKEN);
        AdminToken::parse(&text).ok();
        hash_key(&text);
        let signer = CookieSigner::from_admin_token(&token);
        prop_assert_eq!(signer.verify(&text, Timestamp(0)), None);
    }

    #[test]
    fn x3_changed_cookies_are_rejected(
        mutations in prop::collection::vec(any::<hostile_input::Mutation>(), 0..3),
    ) {
        let token = AdminToken::parse(TOKEN).expect("a valid token");
        let signer = CookieSigner::from_admin_token(&token);
        let cookie = signer.issue(CredentialRef::AdminToken, Timestamp(0));
        let mut changed = cookie.clone().into_bytes();
        mutations.iter().for_each(|mutation| hostile_input::mutate(&mut changed, mutation));
        let changed = String::from_utf8_lossy(&changed).into_owned();
        let is_accepted = signer.verify(&changed, Timestamp(1)).is_some();
        prop_assert_eq!(is_accepted, changed == cookie);
    }
}
