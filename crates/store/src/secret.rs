use std::fmt;

use sha2::{Digest, Sha256};

use crate::StoreError;

const MARK: &str = "pds_";
const RANDOM_BYTES: usize = 16;
const PREFIX_CHARACTERS: usize = 12;

/// A bearer token: `pds_` and 32 hexadecimal digits. Its `Debug` shows only the public prefix.
#[derive(Clone)]
pub struct TokenSecret(String);

/// A text that cannot be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token is `pds_` and 32 lower-case hexadecimal digits")]
pub struct InvalidTokenSecret;

impl TokenSecret {
    /// Makes a token from the operating system's random source.
    ///
    /// # Errors
    /// [`StoreError::Random`] if that source fails.
    pub fn random() -> Result<Self, StoreError> {
        let mut bytes = [0u8; RANDOM_BYTES];
        getrandom::fill(&mut bytes).map_err(StoreError::Random)?;
        Ok(Self(format!("{MARK}{}", hex::encode(bytes))))
    }

    /// Reads a token that a client sent.
    ///
    /// # Errors
    /// [`InvalidTokenSecret`] if the text has not the form of a token.
    pub fn parse(text: &str) -> Result<Self, InvalidTokenSecret> {
        let digits = text.strip_prefix(MARK).ok_or(InvalidTokenSecret)?;
        let well_formed =
            digits.len() == 2 * RANDOM_BYTES && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if well_formed { Ok(Self(text.to_owned())) } else { Err(InvalidTokenSecret) }
    }

    /// The public name: the first 12 characters.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.0[..PREFIX_CHARACTERS]
    }

    /// The secret itself, for the one answer that hands it out.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(crate) fn sha256(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenSecret({}…)", self.prefix())
    }
}
