//! What the answers of a parent and its copies say about what they share.

use std::collections::BTreeMap;

use serde::Serialize;

/// How far a clock may be off, in seconds.
const MOST_SKEW: f64 = 0.5;

/// What one sandbox answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    /// By the keys of [`PROPERTIES`]; what the template has not is absent.
    pub(crate) values: BTreeMap<String, String>,
    /// When it was asked and when the answer was there, in seconds since 1970.
    pub(crate) asked: (f64, f64),
}

/// How values have to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Wanted {
    Different,
    /// As the parent's.
    Same,
    HostTime,
}

struct Property {
    key: &'static str,
    name: &'static str,
    wanted: Wanted,
}

const fn property(key: &'static str, name: &'static str, wanted: Wanted) -> Property {
    Property { key, name, wanted }
}

const PROPERTIES: &[Property] = &[
    property("random", "random.random()", Wanted::Different),
    property("numpy", "numpy.random.random()", Wanted::Different),
    property("uuid", "uuid.uuid4()", Wanted::Different),
    property("secrets", "secrets.token_hex()", Wanted::Different),
    property("ssl", "ssl.RAND_bytes()", Wanted::Different),
    property("urandom", "os.urandom()", Wanted::Different),
    property("tempfile", "names of temporary files", Wanted::Different),
    property("node_math", "node Math.random()", Wanted::Different),
    property("node_bytes", "node crypto.randomBytes()", Wanted::Different),
    property("node_uuid", "node crypto.randomUUID()", Wanted::Different),
    property("bash", "bash $RANDOM", Wanted::Different),
    property("seeded", "random.Random(7)", Wanted::Same),
    property("seeded_numpy", "numpy default_rng(7)", Wanted::Same),
    property("hostname", "host name", Wanted::Different),
    property("machine_id", "machine id", Wanted::Different),
    property("boot_id", "boot id", Wanted::Different),
    property("clock", "clock", Wanted::HostTime),
];

/// How a property was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Ok,
    /// Shared, or not continued, or no answer.
    Fault,
    /// No sandbox of this template has it.
    Absent,
}

/// What was found about a property.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    property: &'static str,
    wanted: Wanted,
    pub(crate) verdict: Verdict,
    /// Sandboxes in which it is as it should not be.
    faulty: usize,
    /// Sandboxes that were asked.
    of: usize,
    /// A sentence for people.
    finding: String,
}

/// Compares what the parent, which comes first, and its copies answered.
pub(crate) fn findings(observations: &[Observation]) -> Vec<Finding> {
    PROPERTIES.iter().map(|property| finding(property, observations)).collect()
}

fn finding(property: &Property, observations: &[Observation]) -> Finding {
    let values: Vec<_> = observations.iter().map(|one| one.values.get(property.key).map(String::as_str)).collect();
    let of = values.len();
    let missing = values.iter().filter(|value| value.is_none()).count();
    let (faulty, said) = if missing == of {
        (0, "not in this template".to_owned())
    } else if missing > 0 {
        (missing, format!("no answer from {missing} of {of}"))
    } else {
        compare(property, &values, observations)
    };
    let verdict = match (missing == of, faulty) {
        (true, _) => Verdict::Absent,
        (false, 0) => Verdict::Ok,
        (false, _) => Verdict::Fault,
    };
    Finding { property: property.name, wanted: property.wanted, verdict, faulty, of, finding: said }
}

fn compare(property: &Property, values: &[Option<&str>], observations: &[Observation]) -> (usize, String) {
    let of = values.len();
    match property.wanted {
        Wanted::Different => {
            let shared = values.iter().filter(|value| values.iter().filter(|other| other == value).count() > 1).count();
            let said =
                if shared == 0 { format!("different in all {of}") } else { format!("the same in {shared} of {of}") };
            (shared, said)
        }
        Wanted::Same => {
            let same = values.iter().filter(|value| **value == values[0]).count();
            (of - same, format!("continues alike in {same} of {of}"))
        }
        Wanted::HostTime => {
            let skews = values.iter().zip(observations).map(|(value, one)| skew(value.unwrap_or_default(), one.asked));
            let skews: Vec<_> = skews.collect();
            let off = skews.iter().filter(|skew| **skew > MOST_SKEW).count();
            let worst = skews.iter().copied().fold(0.0, f64::max);
            let said = if off == 0 {
                format!("at most {worst:.1} s off in all {of}")
            } else {
                format!("more than {MOST_SKEW} s off in {off} of {of}")
            };
            (off, said)
        }
    }
}

/// How far a clock's time is from when it was read, in seconds; infinite if it is none.
fn skew(value: &str, (before, after): (f64, f64)) -> f64 {
    let time = value.parse::<f64>().ok().filter(|time| time.is_finite());
    time.map_or(f64::INFINITY, |time| (before - time).max(time - after).max(0.0))
}

/// One line a property.
pub(crate) fn lines(findings: &[Finding]) -> Vec<String> {
    let width = PROPERTIES.iter().map(|property| property.name.len()).max().unwrap_or_default();
    let line = |finding: &Finding| {
        let mark = match finding.verdict {
            Verdict::Ok => "ok    ",
            Verdict::Fault => "FAULT ",
            Verdict::Absent => "-     ",
        };
        format!("{mark} {:width$}  {}", finding.property, finding.finding)
    };
    findings.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sandboxes that share nothing.
    fn healthy(count: usize) -> Vec<Observation> {
        let one = |index: usize| {
            let value = |property: &Property| match property.wanted {
                Wanted::Different => format!("{}-{index}", property.key),
                Wanted::Same => property.key.to_owned(),
                Wanted::HostTime => "100.5".to_owned(),
            };
            let values = PROPERTIES.iter().map(|property| (property.key.to_owned(), value(property))).collect();
            Observation { values, asked: (100.0, 101.0) }
        };
        (0..count).map(one).collect()
    }

    fn judged(observations: &[Observation], name: &str) -> (Verdict, usize, String) {
        let finding = findings(observations).into_iter().find(|finding| finding.property == name).unwrap();
        (finding.verdict, finding.faulty, finding.finding)
    }

    #[test]
    fn nothing_shared_is_no_fault() {
        let all = findings(&healthy(17));
        assert!(all.iter().all(|finding| finding.verdict == Verdict::Ok), "{all:?}");
        assert_eq!(lines(&all)[0], "ok     random.random()            different in all 17");
    }

    #[test]
    fn shared_values_are_counted() {
        let mut observations = healthy(4);
        for index in [0, 2, 3] {
            observations[index].values.insert("random".to_owned(), "0x1p-1".to_owned());
        }
        let expected = (Verdict::Fault, 3, "the same in 3 of 4".to_owned());
        assert_eq!(judged(&observations, "random.random()"), expected);
        assert_eq!(judged(&observations, "uuid.uuid4()").0, Verdict::Ok);
    }

    #[test]
    fn a_seeded_generator_must_go_on_as_the_parents() {
        let mut observations = healthy(3);
        observations[2].values.insert("seeded".to_owned(), "reseeded".to_owned());
        let expected = (Verdict::Fault, 1, "continues alike in 2 of 3".to_owned());
        assert_eq!(judged(&observations, "random.Random(7)"), expected);
    }

    #[test]
    fn a_clock_may_be_read_at_any_time_while_asked() {
        let mut observations = healthy(5);
        for (observation, time) in observations.iter_mut().zip(["99.6", "101.4", "100", "98.0", "soon"]) {
            observation.values.insert("clock".to_owned(), time.to_owned());
        }
        let (verdict, off, _) = judged(&observations, "clock");
        assert_eq!((verdict, off), (Verdict::Fault, 2));
        for time in ["NaN", "inf", "-1e400"] {
            observations[0].values.insert("clock".to_owned(), time.to_owned());
            assert_eq!(judged(&observations, "clock").1, 3, "{time}");
        }
    }

    #[test]
    fn what_a_template_has_not_is_told_from_silence() {
        let mut observations = healthy(3);
        observations[1].values.remove("numpy");
        assert_eq!(judged(&observations, "numpy.random.random()").2, "no answer from 1 of 3");
        for observation in &mut observations {
            observation.values.remove("node_math");
        }
        assert_eq!(judged(&observations, "node Math.random()").0, Verdict::Absent);
    }
}
