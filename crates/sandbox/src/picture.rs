//! What a picture is, from its first bytes.

use base64::Engine as _;

/// Base64 of the first 24 bytes, which have a PNG's signature, width and height.
const PNG_HEAD: usize = 32;

/// Width and height in pixels of a PNG in base64.
pub(crate) fn size(mime: &str, base64: &str) -> Option<(u32, u32)> {
    let head = base64.trim_start().get(..PNG_HEAD).filter(|_| mime == "image/png")?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(head).ok()?;
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if !bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return None;
    }
    Some((number(16)?, number(20)?))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn a_png_tells_its_size_and_others_do_not() {
        assert_eq!(size("image/png", "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA10dzkAAAA"), Some((640, 480)));
        for (mime, data) in
            [("image/jpeg", "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHg"), ("image/png", "AAAA"), ("image/png", "é")]
        {
            assert_eq!(size(mime, data), None);
        }
        assert_eq!(size("image/png", &"A".repeat(40)), None);
    }
}
