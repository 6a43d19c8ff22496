//! HTTP options of a provider's connection.

use std::time::Duration;

use super::RetryPolicy;

/// HTTP options of a provider's connection.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct HttpOptions {
    /// Maximum time to establish a connection, including TLS. Default: 10 seconds.
    pub connect_timeout: Duration,
    /// Idle timeout: from the request to the first byte of the answer, and between two chunks of it. Models that reason
    /// can be silent for minutes. Default: 300 seconds.
    pub idle_timeout: Duration,
    /// Maximum time without a part of the answer, even if the server sends other data to keep the connection alive.
    /// Default: 900 seconds.
    pub progress_timeout: Duration,
    /// Maximum time for the whole answer with all retries. Default: none.
    pub deadline: Option<Duration>,
    /// URL of a proxy for all requests (`http://`, `https://`). Default: none; the environment is not read. Hidden from
    /// `Debug`, because it may contain a password.
    pub proxy: Option<String>,
    /// Root certificates that are trusted in addition to those of Mozilla and of the system, each as DER.
    pub root_certificates: Vec<Vec<u8>>,
    /// Retries of requests.
    pub retry: RetryPolicy,
    /// Additional headers of every request, as names and values. They replace those of the protocol, and one that has the key
    /// of the protocol replaces the key; those of [`http_header::is_of_client`](toolcell_core::http_header::is_of_client) are
    /// refused. `Debug` shows only the names.
    pub headers: Vec<(String, String)>,
}

impl HttpOptions {
    /// True if an additional header has this name.
    pub(crate) fn has_header(&self, name: &str) -> bool {
        self.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name))
    }
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            progress_timeout: Duration::from_secs(900),
            deadline: None,
            proxy: None,
            root_certificates: Vec::new(),
            retry: RetryPolicy::default(),
            headers: Vec::new(),
        }
    }
}

impl std::fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("HttpOptions")
            .field("connect_timeout", &self.connect_timeout)
            .field("idle_timeout", &self.idle_timeout)
            .field("progress_timeout", &self.progress_timeout)
            .field("deadline", &self.deadline)
            .field("proxy", &self.proxy.as_ref().map(|_| "***"))
            .field("root_certificates", &self.root_certificates.len())
            .field("retry", &self.retry)
            .field("headers", &names)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_secrets() {
        let options = HttpOptions {
            proxy: Some("http://u:planted@proxy".into()),
            headers: vec![("x-key".into(), "planted".into())],
            ..HttpOptions::default()
        };
        let shown = format!("{options:?}");
        assert!(shown.contains("x-key") && !shown.contains("planted"), "{shown}");
    }
}
