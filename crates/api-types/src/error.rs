//! Stable error codes. The status and whether a retry can help follow from the code, everywhere.

use serde::{Deserialize, Serialize};

use crate::views::{Bundle, ContextState, Cut, LateOutput};

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $status:literal, $retryable:literal;)*) => {
        /// What went wrong, for programs. The text form is part of the API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode { $($(#[$doc])* $variant,)* }

        impl ErrorCode {
            /// Every code there is, in the order of the reference page.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The HTTP status it is answered with.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Whether the same request may succeed later.
            #[must_use]
            pub fn retryable(self) -> bool {
                match self { $(Self::$variant => $retryable,)* }
            }
        }
    };
}

error_codes! {
    /// No token, or one that does not exist.
    AuthInvalidToken = "auth.invalid_token", 401, false;
    /// The token may not do this.
    AuthForbidden = "auth.forbidden", 403, false;
    /// The body is no JSON, or not the JSON this route wants.
    ValidationBody = "validation.body", 400, false;
    /// A field, query or path value is out of its range.
    ValidationField = "validation.field", 400, false;
    /// The body is larger than this route takes.
    ValidationTooLarge = "validation.too_large", 413, false;
    /// The content type is not one this route takes.
    ValidationContentType = "validation.content_type", 415, false;
    RouteNotFound = "route.not_found", 404, false;
    MethodNotAllowed = "route.method_not_allowed", 405, false;
    /// Known to the API, not built in this server.
    NotImplemented = "route.not_implemented", 501, false;
    SandboxNotFound = "sandbox.not_found", 404, false;
    /// Paused, or on its way out.
    SandboxInvalidState = "sandbox.invalid_state", 409, false;
    SandboxBootFailed = "sandbox.boot_failed", 500, true;
    /// The sandbox ended while the request ran.
    SandboxGone = "sandbox.gone", 502, false;
    /// It was started by an earlier version of the server, whose agent cannot do this.
    SandboxOutdated = "sandbox.outdated", 409, false;
    /// The agent inside did not answer.
    SandboxUnreachable = "sandbox.unreachable", 502, true;
    /// A stronger isolation was asked for than this server has.
    IsolationUnavailable = "sandbox.isolation_unavailable", 400, false;
    TemplateNotFound = "template.not_found", 400, false;
    /// Known, but not built on this machine.
    TemplateNotBuilt = "template.not_built", 503, false;
    TemplateNotFoundByName = "template.unknown", 404, false;
    TemplateBuildNotFound = "template.build_not_found", 404, false;
    /// A hibernated sandbox could not be woken; its image is unharmed.
    SandboxWakeFailed = "sandbox.wake_failed", 503, true;
    /// No child could be started; the parent goes on.
    ForkFailed = "sandbox.fork_failed", 500, true;
    SnapshotNotFound = "snapshot.not_found", 404, false;
    /// The sandbox could not be captured; it goes on.
    SnapshotFailed = "snapshot.failed", 500, true;
    /// Its files are not what they were when it was taken.
    SnapshotDamaged = "snapshot.damaged", 500, false;
    /// It was taken on another kind of machine, engine or version.
    SnapshotIncompatible = "snapshot.incompatible", 409, false;
    /// Something is made from it right now.
    SnapshotInUse = "snapshot.in_use", 409, true;
    QuotaSandboxes = "quota.sandboxes_exceeded", 429, false;
    QuotaMemory = "quota.memory_exceeded", 429, false;
    QuotaSnapshots = "quota.snapshots_exceeded", 429, false;
    QuotaDisk = "quota.disk_exceeded", 429, false;
    CapacityUnavailable = "capacity.unavailable", 503, true;
    /// The host's disk is full up to its reserve.
    CapacityDisk = "capacity.disk", 507, true;
    /// The idempotency key was used for another request.
    IdempotencyMismatch = "idempotency.conflict", 409, false;
    RateLimit = "rate_limit.api", 429, true;
    CommandTimeout = "command.timeout", 504, false;
    CellTimeout = "cell.timeout", 504, false;
    /// The cell, or the recorded answer to it, is larger than what is kept or handed over.
    CellTooLarge = "cell.too_large", 413, false;
    /// The idempotency key was used in this context with other code.
    IdempotencyConflict = "cell.idempotency_conflict", 409, false;
    ContextNotFound = "context.not_found", 404, false;
    ContextLimit = "context.limit", 429, false;
    ContextLanguage = "context.unknown_language", 400, false;
    /// The interpreter could not be started.
    ContextUnavailable = "context.unavailable", 500, true;
    FileNotFound = "file.not_found", 404, false;
    FileInvalidPath = "file.invalid_path", 400, false;
    FileIsDirectory = "file.is_directory", 400, false;
    FileNotDirectory = "file.not_directory", 400, false;
    FilePermission = "file.permission_denied", 403, false;
    FileNoSpace = "file.no_space", 507, false;
    FileTooLarge = "file.too_large", 413, false;
    FileIo = "file.io", 500, false;
    TokenNotFound = "token.not_found", 404, false;
    /// The server is stopping.
    ShuttingDown = "server.shutting_down", 503, true;
    Internal = "internal.error", 500, false;
}

impl ErrorCode {
    /// Seconds after which a host that is full may have room again; the published Python client retries only if it is told.
    #[must_use]
    pub fn retry_after_seconds(self) -> Option<u64> {
        matches!(self, Self::CapacityUnavailable | Self::CapacityDisk).then_some(5)
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// An error that knows its code. Its `Display` is the sentence the caller reads.
pub trait Coded: std::error::Error {
    fn code(&self) -> ErrorCode;

    /// Seconds after which a retry makes sense, sent as `Retry-After`.
    fn retry_after_seconds(&self) -> Option<u64> {
        self.code().retry_after_seconds()
    }

    /// Output that had arrived before the error, sent beside it.
    fn partial_output(&self) -> Option<PartialOutput> {
        None
    }
}

/// What a command or cell had said when it was ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialOutput {
    pub stdout: String,
    pub stderr: String,
    /// Results and displays that had arrived, for a cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Bundle>,
    /// For a cell: what became of the variables of earlier cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_state: Option<ContextState>,
    /// Why they are not alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_reason: Option<String>,
    /// What earlier cells wrote meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_output: Vec<LateOutput>,
    /// The whole as one text, if the run asked for it with `max_chars`, and what is cut in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Vec<Cut>>,
}

/// The body of every error answer: flat, because the published clients print `error` as it stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    /// A sentence: what failed and what to do.
    pub error: String,
    /// An [`ErrorCode`] as text.
    pub code: String,
    pub request_id: String,
    pub retryable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialOutput>,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::ErrorCode;

    #[test]
    fn codes_are_distinct_and_statuses_are_errors() {
        let texts: HashSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), ErrorCode::ALL.len());
        assert!(ErrorCode::ALL.iter().all(|code| (400..600).contains(&code.status())));
    }

    /// Both published SDKs raise their timeout error only for a 5xx.
    #[test]
    fn timeouts_are_5xx() {
        assert!(ErrorCode::CommandTimeout.status() >= 500 && ErrorCode::CellTimeout.status() >= 500);
    }
}
