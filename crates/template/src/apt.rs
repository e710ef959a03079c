//! Which Debian mirror this machine's apt uses. Pure: text in, addresses out.

/// The releases of Debian by the names that stand in `Suites:`.
const DEBIAN_SUITES: &[&str] = &[
    "buster",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
];

/// One archive of apt's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    uri: String,
    suites: Vec<String>,
    components: Vec<String>,
    signed_by: Option<String>,
}

/// Where Debian's packages come from on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirrors {
    archive: String,
    /// Whether the machine takes the point-release updates as well.
    updates: bool,
    security: Option<String>,
}

impl Mirrors {
    /// Chooses among all sources in the order apt reads them. Entries signed by Debian's own keyring win over unsigned ones, and those
    /// over entries signed by others, which are vendors' repositories that copy Debian's suite names.
    pub(crate) fn choose(sources: &[Source]) -> Option<Self> {
        let best = |suffix: &'static str| {
            sources
                .iter()
                .filter(move |source| source.has_debian_suite(suffix))
                .min_by_key(|source| source.distance_from_debian())
        };
        let archive = best("")?;
        let updates = sources.iter().any(|source| source.uri == archive.uri && source.has_debian_suite("-updates"));
        Some(Self {
            archive: archive.uri.clone(),
            updates,
            security: best("-security").map(|source| source.uri.clone()),
        })
    }

    /// Lines of the one-line format for another release.
    pub(crate) fn lines(&self, suite: &str) -> Vec<String> {
        let mut lines = vec![format!("deb {} {suite} main", self.archive)];
        if self.updates {
            lines.push(format!("deb {} {suite}-updates main", self.archive));
        }
        if let Some(security) = &self.security {
            lines.push(format!("deb {security} {suite}-security main"));
        }
        lines
    }

    pub(crate) fn archive(&self) -> &str {
        &self.archive
    }
}

impl Source {
    fn has_debian_suite(&self, suffix: &str) -> bool {
        let fits = |suite: &String| {
            let suite = suite.trim_end_matches('/');
            DEBIAN_SUITES.iter().any(|name| suite.strip_prefix(name) == Some(suffix))
        };
        self.suites.iter().any(fits) && self.components.iter().any(|component| component == "main")
    }

    fn distance_from_debian(&self) -> u8 {
        match &self.signed_by {
            Some(key) if key.contains("debian-archive") => 0,
            None => 1,
            Some(_) => 2,
        }
    }

    /// The file that lists mirrors, for a `mirror+file:` address.
    pub(crate) fn mirror_list(&self) -> Option<&str> {
        let rest = self.uri.strip_prefix("mirror+file:")?;
        Some(rest.strip_prefix("//").unwrap_or(rest))
    }

    /// Takes the first address of a mirror list.
    pub(crate) fn resolve(&mut self, mirror_list: &str) {
        let first = mirror_list.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
        if let Some(uri) = first.and_then(|line| line.split_whitespace().next()) {
            uri.clone_into(&mut self.uri);
        }
    }
}

/// Reads the deb822 format (`.sources`).
pub(crate) fn parse_deb822(text: &str) -> Vec<Source> {
    let without_comments: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    without_comments.split(|line| line.trim().is_empty()).flat_map(parse_stanza).collect()
}

fn parse_stanza(lines: &[&str]) -> Vec<Source> {
    let words = |wanted: &str| -> Vec<String> {
        let mut found = Vec::new();
        let mut inside = false;
        for line in lines {
            let value = if line.starts_with([' ', '\t']) {
                *line
            } else {
                let Some((key, value)) = line.split_once(':') else { continue };
                inside = key.trim().eq_ignore_ascii_case(wanted);
                value
            };
            if inside {
                found.extend(value.split_whitespace().map(str::to_owned));
            }
        }
        found
    };
    let disabled = words("Enabled")
        .first()
        .is_some_and(|word| ["no", "false", "without", "off", "disable"].contains(&word.as_str()));
    if disabled || !words("Types").iter().any(|kind| kind == "deb") {
        return Vec::new();
    }
    let (suites, components) = (words("Suites"), words("Components"));
    // A key may also stand here in full; its first line is then a dot or the armour's header.
    let signed_by = words("Signed-By").first().cloned();
    words("URIs")
        .into_iter()
        .map(|uri| Source { uri, suites: suites.clone(), components: components.clone(), signed_by: signed_by.clone() })
        .collect()
}

/// Reads the one-line format (`.list`).
pub(crate) fn parse_list(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let mut rest = line.strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
    let mut signed_by = None;
    if let Some(after) = rest.strip_prefix('[') {
        let (options, tail) = after.split_once(']')?;
        signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by=")).map(str::to_owned);
        rest = tail;
    }
    let mut words = rest.split_whitespace().map(str::to_owned);
    let (uri, suite) = (words.next()?, words.next()?);
    if uri.starts_with("cdrom:") {
        return None;
    }
    Some(Source { uri, suites: vec![suite], components: words.collect(), signed_by })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEB822: &str = "\
Types: deb
# a comment in between
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb deb-src
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main contrib

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no
";

    #[test]
    fn deb822_configuration() {
        let mirrors = Mirrors::choose(&parse_deb822(DEB822)).unwrap();
        assert_eq!(
            mirrors.lines("trixie"),
            [
                "deb http://mirror.example/debian trixie main",
                "deb http://mirror.example/debian trixie-updates main",
                "deb http://mirror.example/debian-security trixie-security main",
            ]
        );
    }

    #[test]
    fn list_configuration() {
        let text = "# deb http://no.example/debian bookworm main\n\
            deb cdrom:[Debian 12]/ bookworm main\n\
            deb-src http://src.example/debian bookworm main\n\
            deb [ arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg ] http://mirror.example/debian bookworm main # x\n";
        let mirrors = Mirrors::choose(&parse_list(text)).unwrap();
        assert_eq!(mirrors.lines("trixie"), ["deb http://mirror.example/debian trixie main"]);
    }

    #[test]
    fn vendors_that_use_debian_suite_names_do_not_win() {
        let mut sources = parse_list(
            "deb [signed-by=/usr/share/keyrings/vendor.gpg] http://vendor.example/debian bookworm main\n\
             deb http://docker.example/linux/debian bookworm stable\n\
             deb http://vendor.example/apt sdk-bookworm main\n",
        );
        assert_eq!(Mirrors::choose(&sources).unwrap().archive(), "http://vendor.example/debian");
        sources.extend(parse_list("deb http://mirror.example/debian bookworm main"));
        assert_eq!(Mirrors::choose(&sources).unwrap().archive(), "http://mirror.example/debian");
        sources.extend(parse_deb822(DEB822.replace("mirror.example", "signed.example").as_str()));
        assert_eq!(Mirrors::choose(&sources).unwrap().archive(), "http://signed.example/debian");
    }

    #[test]
    fn mirror_lists_are_followed() {
        let mut sources = parse_deb822(
            "Types: deb\nURIs: mirror+file:///etc/apt/mirrors/debian.list\nSuites: bookworm\nComponents:\n main\n contrib\n",
        );
        assert_eq!(sources[0].mirror_list(), Some("/etc/apt/mirrors/debian.list"));
        sources[0].resolve("# first\n\nhttp://cloud.example/debian priority:1\nhttp://other.example\n");
        assert_eq!(Mirrors::choose(&sources).unwrap().archive(), "http://cloud.example/debian");
    }

    #[test]
    fn other_distributions_have_none() {
        assert_eq!(Mirrors::choose(&parse_list("deb http://ubuntu.example/ubuntu noble main universe")), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in "(deb|Types:|URIs:|\\[|\\]|[ \\t\\n#:a-z])*") {
            drop(Mirrors::choose(&parse_list(&text)));
            drop(Mirrors::choose(&parse_deb822(&text)));
        }
    }
}
