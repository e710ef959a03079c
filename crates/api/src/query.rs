//! Query strings, read strictly: a byte that is no text is an error, never a replacement character, because a
//! replaced one would name another file.

use pandastack_api_types::ErrorCode;
use percent_encoding::percent_decode;

use crate::error::ApiError;

/// The first value of a key in a query string, percent and plus signs decoded.
///
/// # Errors
/// If that value is no UTF-8.
pub fn value(query: Option<&str>, key: &str) -> Result<Option<String>, ApiError> {
    for pair in query.unwrap_or_default().split('&') {
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        if decoded(name).as_deref() == Some(key) {
            let text = decoded(text)
                .ok_or_else(|| ApiError::new(ErrorCode::ValidationField, format!("query value {key} must be UTF-8")))?;
            return Ok(Some(text));
        }
    }
    Ok(None)
}

fn decoded(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    percent_decode(spaced.as_bytes()).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn values_are_decoded_once() {
        let query = Some("a=1&path=%2Ftmp%2Fa+b%2520%C3%A4&path=/other&flag");
        assert_eq!(value(query, "path").unwrap().as_deref(), Some("/tmp/a b%20ä"));
        assert_eq!(value(query, "flag").unwrap().as_deref(), Some(""));
        assert_eq!(value(query, "b").unwrap(), None);
        assert_eq!(value(None, "path").unwrap(), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert!(value(Some("path=%ff"), "path").is_err());
        assert_eq!(value(Some("path=a%00b"), "path").unwrap().as_deref(), Some("a\0b"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_survives(text in "\\PC*") {
            let encoded = percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC);
            let read = value(Some(&format!("x=y&path={encoded}")), "path").unwrap();
            proptest::prop_assert_eq!(read.as_deref(), Some(text.as_str()));
        }
    }
}
