//! Cost of requests at prices set by the user. Prices change and differ between contracts, so none are built in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toolcell_core::provider::Usage;

/// Price of a model, in any currency, per million tokens of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Input tokens that are not in a cache.
    pub input: f64,
    /// Input tokens read from a cache; `None` charges them as input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Input tokens written to a cache; `None` charges them as input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
    /// Output tokens, including reasoning.
    pub output: f64,
}

/// Prices by model name.
///
/// ```
/// use toolcell_core::provider::Usage;
/// use toolcell_providers::price::PriceTable;
///
/// let table: PriceTable = serde_json::from_str(r#"{"gpt-5*": {"input": 1.25, "output": 10.0}}"#)?;
/// let usage = Usage { input: 2_000, output: 500, ..Usage::default() };
/// assert_eq!(table.cost("gpt-5-mini", &usage), Some(0.0075));
/// # Ok::<(), serde_json::Error>(())
/// ```
/// A name that ends in `*` matches all names with that prefix; the longest match applies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceTable(pub BTreeMap<String, Price>);

impl Price {
    /// Cost of a request, in the currency of the price.
    #[expect(clippy::cast_precision_loss, reason = "no request has so many tokens")]
    pub fn cost(&self, usage: &Usage) -> f64 {
        let cached = usage.cache_read.saturating_add(usage.cache_write);
        let fresh = usage.input.saturating_sub(cached);
        let of = |tokens: u64, price: f64| tokens as f64 * price;
        (of(fresh, self.input)
            + of(usage.cache_read, self.cache_read.unwrap_or(self.input))
            + of(usage.cache_write, self.cache_write.unwrap_or(self.input))
            + of(usage.output, self.output))
            / 1e6
    }
}

impl PriceTable {
    /// Price of a model, or `None` if the table has none.
    pub fn price(&self, model: &str) -> Option<&Price> {
        self.0.get(model).or_else(|| {
            let fits = |name: &&String| {
                name.strip_suffix('*')
                    .is_some_and(|start| model.starts_with(start))
            };
            let best = self.0.keys().filter(fits).max_by_key(|name| name.len())?;
            self.0.get(best)
        })
    }

    /// Cost of a request to a model, or `None` if the table has no price for it.
    pub fn cost(&self, model: &str, usage: &Usage) -> Option<f64> {
        self.price(model).map(|price| price.cost(usage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_token_has_its_price() {
        let usage = Usage {
            input: 1_000_000,
            cache_read: 400_000,
            cache_write: 100_000,
            output: 200_000,
            reasoning: 150_000,
        };
        let price = Price {
            input: 3.0,
            cache_read: Some(0.3),
            cache_write: Some(3.75),
            output: 15.0,
        };
        assert!((price.cost(&usage) - (1.5 + 0.12 + 0.375 + 3.0)).abs() < 1e-9);
        let simple = Price {
            cache_read: None,
            cache_write: None,
            ..price
        };
        assert!((simple.cost(&usage) - 6.0).abs() < 1e-9);
        let odd = Usage {
            cache_read: 5,
            ..Usage::default()
        };
        assert!(simple.cost(&odd) >= 0.0);
    }

    #[test]
    fn price_is_found_by_name_or_longest_prefix() {
        let table: PriceTable = serde_json::from_str(
            r#"{"gpt-x":{"input":1,"output":1},"gpt-*":{"input":2,"output":2},"gpt-x-*":{"input":3,"output":3}}"#,
        )
        .unwrap();
        let input = |model: &str| table.price(model).map(|p| p.input);
        assert_eq!(input("gpt-x"), Some(1.0));
        assert_eq!(input("gpt-y"), Some(2.0));
        assert_eq!(input("gpt-x-mini"), Some(3.0));
        assert_eq!(input("other"), None);
        assert_eq!(table.cost("other", &Usage::default()), None);
        assert!(serde_json::from_str::<PriceTable>(r#"{"a":{"input":1,"output":1,"x":1}}"#).is_err());
    }
}
