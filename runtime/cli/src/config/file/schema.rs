//! JSON Schema of the configuration file, generated from its types.

use serde_json::Value;

use super::File;

/// Returns the schema (JSON Schema 2020-12). `config.schema.json` next to `Cargo.toml` is a copy for editors.
pub(crate) fn json_schema() -> Value {
    schemars::schema_for!(File).to_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE_SCHEMA=1 cargo test -p toolcell` updates the file.
    #[test]
    fn checked_in_schema_matches_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config.schema.json");
        let schema = format!("{:#}\n", json_schema());
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(path, &schema).unwrap();
        }
        let checked_in = std::fs::read_to_string(path).unwrap();
        assert!(
            checked_in == schema,
            "the file is outdated; set UPDATE_SCHEMA=1 to update it"
        );
    }
}
