//! Clients: the user's page, known by a cookie, and programs, known by their bearer tokens.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, COOKIE, HeaderValue};
use toolcell_http::Token;

use crate::clients::{Client, ClientLimits, ClientState};

/// Path of the one-time link.
pub const LINK_PATH: &str = "/login";

/// Time for which a cookie is valid.
const COOKIE_TIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Key with which cookies are made, kept over restarts.
#[derive(Clone)]
pub struct PageKey([u8; 32]);

impl PageKey {
    /// Derives the key from a secret of the user.
    pub fn of_secret(secret: &str) -> Self {
        Self(blake3::derive_key(
            "toolcell serve: cookies of the page",
            secret.as_bytes(),
        ))
    }

    fn cookie(&self, expires: u64) -> String {
        let mac = blake3::keyed_hash(&self.0, format!("v1.{expires}").as_bytes());
        format!("v1.{expires}.{}", mac.to_hex())
    }

    fn accepts(&self, cookie: &str, now: u64) -> bool {
        let mut parts = cookie.split('.');
        let (Some("v1"), Some(expires), Some(mac), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return false;
        };
        let (Ok(expires), Ok(mac)) = (expires.parse::<u64>(), blake3::Hash::from_hex(mac)) else {
            return false;
        };
        // `Hash` compares in constant time.
        expires > now && mac == blake3::keyed_hash(&self.0, format!("v1.{expires}").as_bytes())
    }
}

/// Shows a link to the user.
pub type LinkPrinter = Box<dyn Fn(&str) + Send + Sync>;

/// Clients of the server.
pub struct Access {
    clients: Vec<(String, Token, Arc<ClientState>)>,
    /// Client of the page.
    page: Arc<ClientState>,
    key: PageKey,
    link: Mutex<Link>,
    print: LinkPrinter,
}

struct Link {
    /// 256 random bits, which cannot be guessed.
    code: String,
}

/// Client of a request.
#[derive(Clone)]
pub(crate) struct Caller {
    /// Name of the client; empty for the user of the server.
    pub(crate) owner: String,
    /// True for the page.
    pub(crate) is_page: bool,
    /// Its limits, and what it uses.
    pub(crate) state: Arc<ClientState>,
}

impl Caller {
    /// True if a session is the client's.
    pub(crate) fn owns(&self, owner: Option<&str>) -> bool {
        owner.unwrap_or_default() == self.owner
    }
}

/// Returns 32 random bytes in hexadecimal.
fn random() -> String {
    let mut bytes = [0; 32];
    // Without random bytes no link can be made; the empty code is never accepted.
    match getrandom::fill(&mut bytes) {
        Ok(()) => blake3::Hash::from_bytes(bytes).to_hex().to_string(),
        Err(_) => String::new(),
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

impl Access {
    /// Creates the access of clients, and of the page, whose link `print` shows.
    pub fn new(clients: Vec<Client>, key: PageKey, print: LinkPrinter) -> Self {
        let link = Link { code: random() };
        let clients = clients
            .into_iter()
            .map(|client| (client.name, client.token, ClientState::new(client.limits)));
        Self {
            clients: clients.collect(),
            page: ClientState::new(ClientLimits::default()),
            key,
            link: Mutex::new(link),
            print,
        }
    }

    /// Shows the link.
    pub fn print_link(&self) {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        (self.print)(&format!("{LINK_PATH}?code={}", link.code));
    }

    /// Takes the code of a link, which is then replaced; returns the cookie.
    pub(crate) fn take(&self, code: &str, port: u16) -> Option<String> {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let is_right =
            !link.code.is_empty() && blake3::hash(code.as_bytes()) == blake3::hash(link.code.as_bytes());
        if !is_right {
            return None;
        }
        *link = Link { code: random() };
        drop(link);
        self.print_link();
        let value = self.key.cookie(now() + COOKIE_TIME.as_secs());
        Some(format!(
            "{}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={}",
            name(port),
            COOKIE_TIME.as_secs()
        ))
    }

    /// Returns the client of a request.
    pub(crate) fn caller(&self, headers: &HeaderMap, port: u16) -> Option<Caller> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        if let Some(header) = values.next() {
            if values.next().is_some() {
                return None;
            }
            let mut found = None;
            // All of them are compared, so that the time tells nothing about which it is.
            for (name, token, state) in &self.clients {
                if token.is_in(header.as_bytes()) {
                    found = Some((name, state));
                }
            }
            return found.map(|(name, state)| Caller {
                owner: name.clone(),
                is_page: false,
                state: state.clone(),
            });
        }
        let name = name(port);
        let cookies = headers.get_all(COOKIE).iter().filter_map(to_text);
        let mut values = cookies
            .flat_map(|all| all.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='));
        let now = now();
        let is_page = values.any(|(key, value)| key == name && self.key.accepts(value, now));
        is_page.then(|| Caller {
            owner: String::new(),
            is_page: true,
            state: self.page.clone(),
        })
    }
}

fn to_text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

/// Name of the cookie: cookies of `localhost` are shared by all its ports.
fn name(port: u16) -> String {
    format!("toolcell_{port}")
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    fn access() -> (Access, Arc<Mutex<Vec<String>>>) {
        let printed = Arc::new(Mutex::new(Vec::new()));
        let to = printed.clone();
        let token = Token::new(&"x".repeat(32)).unwrap();
        let client = Client {
            name: "ada".into(),
            token,
            limits: ClientLimits::default(),
        };
        let print = Box::new(move |link: &str| to.lock().unwrap().push(link.to_owned()));
        (Access::new(vec![client], PageKey::of_secret("s"), print), printed)
    }

    fn code(link: &str) -> String {
        link.split_once("code=").unwrap().1.to_owned()
    }

    #[test]
    fn link_is_accepted_once_and_makes_a_cookie() {
        let (access, printed) = access();
        access.print_link();
        let first = code(&printed.lock().unwrap()[0]);
        assert_eq!(first.len(), 64);
        assert_eq!(access.take("", 80), None);
        let cookie = access.take(&first, 80).unwrap();
        assert!(
            cookie.contains("; HttpOnly; SameSite=Strict; Path=/; "),
            "{cookie}"
        );
        assert_eq!(access.take(&first, 80), None);
        assert_ne!(code(&printed.lock().unwrap()[1]), first);
        let value = cookie.split(';').next().unwrap();
        let caller = access.caller(&headers(COOKIE, &format!("a=b; {value}")), 80);
        assert!(caller.is_some_and(|caller| caller.is_page && caller.owner.is_empty()));
        assert!(access.caller(&headers(COOKIE, value), 81).is_none());
        let other = headers(COOKIE, &format!("{value}0"));
        assert!(access.caller(&other, 80).is_none());
    }

    #[test]
    fn wrong_codes_leave_the_link_as_it_is() {
        let (access, printed) = access();
        access.print_link();
        let first = code(&printed.lock().unwrap()[0]);
        for _ in 0..100 {
            assert_eq!(access.take("guess", 80), None);
        }
        assert_eq!(printed.lock().unwrap().len(), 1);
        assert!(access.take(&first, 80).is_some());
    }

    #[test]
    fn cookie_ends_after_its_time_and_needs_its_key() {
        let key = PageKey::of_secret("s");
        let cookie = key.cookie(1_000);
        assert!(key.accepts(&cookie, 999) && !key.accepts(&cookie, 1_000));
        assert!(!PageKey::of_secret("t").accepts(&cookie, 999));
        assert!(!key.accepts(&cookie.replace("1000", "9000"), 999));
        for wrong in ["", "v1", "v1.x.y", "v1.1000.00", "v2.1000.00.0"] {
            assert!(!key.accepts(wrong, 0), "{wrong}");
        }
    }

    #[test]
    fn token_names_its_client() {
        let (access, _) = access();
        let bearer = |token: &str| headers(AUTHORIZATION, &format!("Bearer {token}"));
        let caller = access.caller(&bearer(&"x".repeat(32)), 80).unwrap();
        assert_eq!(caller.owner, "ada");
        assert!(caller.owns(Some("ada")) && !caller.owns(None) && !caller.owns(Some("eve")));
        assert!(access.caller(&bearer(&"y".repeat(32)), 80).is_none());
        assert!(access.caller(&HeaderMap::new(), 80).is_none());
    }
}
