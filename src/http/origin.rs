//! Origin check (X3). Browsers send the site of the calling page in `Origin`; a page of another site
//! must not use the browser's credentials. Pure.

/// True if `origin` is the site at `host` or is listed in `allowed`.
pub(super) fn is_allowed_origin(origin: &str, host: Option<&str>, allowed: &[String]) -> bool {
    let is_listed = allowed.iter().any(|entry| entry.eq_ignore_ascii_case(origin));
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let is_own = match (authority, host) {
        (Some(authority), Some(host)) => authority.eq_ignore_ascii_case(host),
        (None, _) | (_, None) => false,
    };
    is_own || is_listed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x3_own_and_listed_origins_are_allowed() {
        let allowed = ["https://chat.example.org".to_owned()];
        let host = Some("127.0.0.1:7878");
        for (origin, expected) in [
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
            assert_eq!(is_allowed_origin(origin, host, &allowed), expected, "{origin}");
        }
        assert!(!is_allowed_origin("http://127.0.0.1:7878", None, &[]));
    }
}
