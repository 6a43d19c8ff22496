//! The settings of a provider's connection.

use std::time::Duration;

use super::RetryPolicy;

/// The settings of a provider's connection.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HttpOptions {
    /// Longest time for a connection to stand, with TLS. Default: 10 seconds.
    pub connect_timeout: Duration,
    /// Longest silence: from the request to the first byte of the answer, and between two pieces of it. Models that
    /// reason can be silent for minutes. Default: 300 seconds.
    pub idle_timeout: Duration,
    /// Longest time for the whole answer with all retries. Default: none.
    pub deadline: Option<Duration>,
    /// URL of a proxy for all requests (`http://`, `https://`). Default: none; the environment is not asked.
    pub proxy: Option<String>,
    /// When a request is sent again.
    pub retry: RetryPolicy,
    /// Further headers for every request, as names and values. They are not shown by `Debug` of the provider.
    pub headers: Vec<(String, String)>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            deadline: None,
            proxy: None,
            retry: RetryPolicy::default(),
            headers: Vec::new(),
        }
    }
}
