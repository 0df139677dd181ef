//! An address and a port in arguments.

use std::net::SocketAddr;

/// Parses an IP address and a port.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "it takes an IP address and a port, as 127.0.0.1:7070 or [::1]:7070".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_errors_show_a_valid_example() {
        assert!(address("[::1]:7070").is_ok());
        for text in ["localhost:7070", "127.0.0.1", "7070", "::1:7070", ""] {
            let error = address(text).expect_err(text);
            assert!(error.contains("127.0.0.1:7070 or [::1]:7070"), "{error}");
        }
    }
}
