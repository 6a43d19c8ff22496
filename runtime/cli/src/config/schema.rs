//! The JSON Schema of the configuration file, made from its types.

use serde_json::Value;

use super::file::File;

/// The schema (JSON Schema 2020-12). `config.schema.json` beside `Cargo.toml` holds it for editors.
pub(crate) fn json_schema() -> Value {
    schemars::schema_for!(File).to_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE_SCHEMA=1 cargo test -p toolcell` writes the file anew.
    #[test]
    fn the_schema_that_is_checked_in_is_the_schema_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config.schema.json");
        let schema = format!("{:#}\n", json_schema());
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(path, &schema).unwrap();
        }
        let checked_in = std::fs::read_to_string(path).unwrap();
        assert!(
            checked_in == schema,
            "it differs; set UPDATE_SCHEMA=1 to renew it"
        );
    }
}
