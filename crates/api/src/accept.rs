//! Which of the forms of an answer a caller prefers.

use http::{HeaderMap, header::ACCEPT};

/// How much a caller wants a form: its weight, how exactly it is named, and how early; more is better.
type Wish = (u16, u8, usize);

/// Whether events are preferred to JSON. JSON it is if the caller says nothing, or not clearly.
pub(crate) fn prefers_events(headers: &HeaderMap) -> bool {
    let lines: Vec<_> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let ranges: Vec<_> = lines.iter().flat_map(|line| split(line, ',')).filter_map(Range::parse).collect();
    let events = wish(&ranges, "text", "event-stream");
    events.is_some_and(|events| events.0 > 0 && events.1 > 0 && Some(events) > wish(&ranges, "application", "json"))
}

/// The most exact range that a form falls in decides; of equal ones, the first.
fn wish(ranges: &[Range<'_>], main: &str, sub: &str) -> Option<Wish> {
    let wishes = ranges.iter().enumerate().filter_map(|(index, range)| {
        let exactness = range.exactness(main, sub)?;
        Some((range.weight, exactness, usize::MAX - index))
    });
    wishes.max_by_key(|&(_, exactness, earliness)| (exactness, earliness))
}

struct Range<'a> {
    main: &'a str,
    sub: &'a str,
    /// In thousandths.
    weight: u16,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = split(text, ';');
        let (main, sub) = parts.next()?.trim().split_once('/')?;
        let weight = parts.find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("q").then(|| weight(value.trim()))
        });
        Some(Self { main, sub, weight: weight.unwrap_or(1000) })
    }

    /// 2 for the type itself, 1 for its family, 0 for anything.
    fn exactness(&self, main: &str, sub: &str) -> Option<u8> {
        match (self.main, self.sub) {
            ("*", "*") => Some(0),
            (family, "*") if family.eq_ignore_ascii_case(main) => Some(1),
            (family, kind) if family.eq_ignore_ascii_case(main) && kind.eq_ignore_ascii_case(sub) => Some(2),
            _ => None,
        }
    }
}

/// A quality value in thousandths; one that is none counts as none given.
fn weight(text: &str) -> u16 {
    match text.parse::<f32>() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
        Ok(value) if (0.0..=1.0).contains(&value) => (value * 1000.0) as u16,
        _ => 1000,
    }
}

/// Parts of a header value, cut where no quotation is open.
fn split(text: &str, at: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |character| {
        let escapes = quoted && !escaped && character == '\\';
        if character == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = escapes;
        !quoted && character == at
    })
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header::ACCEPT};

    use super::prefers_events;

    fn with(values: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ACCEPT, HeaderValue::from_str(value).unwrap());
        }
        prefers_events(&headers)
    }

    #[test]
    fn events_are_sent_to_those_who_prefer_them() {
        for accept in [
            "text/event-stream",
            "Text/Event-Stream; charset=utf-8",
            "text/event-stream, */*",
            "text/event-stream, application/json",
            "text/event-stream, application/json;q=0.9",
            "application/json;q=0.5, text/event-stream;q=0.7",
            "text/*, application/json;q=0.1",
            "x/y;a=\"text/html,application/json\", text/event-stream;q=0.1",
        ] {
            assert!(with(&[accept]), "{accept}");
        }
        assert!(with(&["image/png", "text/event-stream"]));
    }

    #[test]
    fn json_is_sent_to_all_others() {
        for accept in [
            "*/*",
            "application/json",
            "application/json, text/event-stream",
            "application/json, text/event-stream;q=0.9",
            "text/event-stream;q=0",
            "text/event-stream;q=0.2, */*;q=0.5",
            "text/html",
            "text/event-streams",
            "text/event-stream/x",
            "x;a=\"text/event-stream\"",
            "",
            ";;,,",
        ] {
            assert!(!with(&[accept]), "{accept}");
        }
        assert!(!with(&[]));
    }
}
