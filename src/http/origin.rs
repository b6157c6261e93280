//! Whose page is calling (X3). Browsers say so in `Origin`; a page of another site must not be
//! able to use what the browser knows. Pure.

/// Whether `origin` is the site at `host` itself, or one of `allowed`.
pub(super) fn is_allowed_origin(origin: &str, host: Option<&str>, allowed: &[String]) -> bool {
    let listed = allowed.iter().any(|known| known.eq_ignore_ascii_case(origin));
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let own = match (authority, host) {
        (Some(authority), Some(host)) => authority.eq_ignore_ascii_case(host),
        (None, _) | (_, None) => false,
    };
    own || listed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x3_the_own_site_and_listed_ones_are_welcome() {
        let allowed = ["https://chat.example.org".to_owned()];
        let host = Some("127.0.0.1:7878");
        for (origin, welcome) in [
            ("http://127.0.0.1:7878", true),
            ("https://chat.example.org", true),
            ("https://CHAT.example.org", true),
            ("http://127.0.0.1:7879", false),
            ("http://127.0.0.1", false),
            ("http://localhost:7878", false),
            ("http://chat.example.org", false),
            ("https://chat.example.org.evil.test", false),
            ("http://evil.test", false),
            ("null", false),
            ("", false),
            ("127.0.0.1:7878", false),
        ] {
            assert_eq!(is_allowed_origin(origin, host, &allowed), welcome, "{origin}");
        }
        assert!(!is_allowed_origin("http://127.0.0.1:7878", None, &[]));
    }
}
