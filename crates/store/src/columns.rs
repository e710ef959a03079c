//! Values of columns that several tables have.

use std::collections::BTreeMap;

use crate::StoreError;

pub(crate) fn map_text(map: &BTreeMap<String, String>) -> String {
    serde_json::to_string(map).expect("a map of strings is always JSON")
}

pub(crate) fn map_from(
    table: &'static str,
    column: &'static str,
    text: &str,
) -> Result<BTreeMap<String, String>, StoreError> {
    serde_json::from_str(text).map_err(|_| corrupt(table, column, text))
}

pub(crate) fn corrupt(table: &'static str, column: &'static str, value: &str) -> StoreError {
    StoreError::CorruptRow { table, column, value: value.chars().take(80).collect() }
}

pub(crate) fn signed(field: &'static str, value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::OutOfRange { field, value })
}

pub(crate) fn unsigned(table: &'static str, column: &'static str, value: i64) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(|_| corrupt(table, column, &value.to_string()))
}
