//! Time zones named by a city.

/// Zones of the IANA time zone database (<https://www.iana.org/time-zones>) whose last part is a commonly used city.
/// Any other zone is recognised in full form, such as `Asia/Thimphu`.
const ZONES: &[&str] = &[
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/Johannesburg",
    "Africa/Lagos",
    "Africa/Nairobi",
    "America/Anchorage",
    "America/Argentina/Buenos_Aires",
    "America/Bogota",
    "America/Caracas",
    "America/Chicago",
    "America/Denver",
    "America/Halifax",
    "America/Havana",
    "America/Lima",
    "America/Los_Angeles",
    "America/Mexico_City",
    "America/New_York",
    "America/Phoenix",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/Toronto",
    "America/Vancouver",
    "Asia/Baghdad",
    "Asia/Baku",
    "Asia/Bangkok",
    "Asia/Beirut",
    "Asia/Colombo",
    "Asia/Damascus",
    "Asia/Dhaka",
    "Asia/Dubai",
    "Asia/Ho_Chi_Minh",
    "Asia/Hong_Kong",
    "Asia/Jakarta",
    "Asia/Jerusalem",
    "Asia/Kabul",
    "Asia/Karachi",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Asia/Kuala_Lumpur",
    "Asia/Manila",
    "Asia/Riyadh",
    "Asia/Seoul",
    "Asia/Shanghai",
    "Asia/Singapore",
    "Asia/Taipei",
    "Asia/Tashkent",
    "Asia/Tehran",
    "Asia/Tokyo",
    "Asia/Vladivostok",
    "Atlantic/Reykjavik",
    "Australia/Adelaide",
    "Australia/Brisbane",
    "Australia/Melbourne",
    "Australia/Perth",
    "Australia/Sydney",
    "Europe/Amsterdam",
    "Europe/Athens",
    "Europe/Belgrade",
    "Europe/Berlin",
    "Europe/Brussels",
    "Europe/Bucharest",
    "Europe/Budapest",
    "Europe/Copenhagen",
    "Europe/Dublin",
    "Europe/Helsinki",
    "Europe/Istanbul",
    "Europe/Kyiv",
    "Europe/Lisbon",
    "Europe/London",
    "Europe/Luxembourg",
    "Europe/Madrid",
    "Europe/Moscow",
    "Europe/Oslo",
    "Europe/Paris",
    "Europe/Prague",
    "Europe/Riga",
    "Europe/Rome",
    "Europe/Sofia",
    "Europe/Stockholm",
    "Europe/Tallinn",
    "Europe/Vienna",
    "Europe/Vilnius",
    "Europe/Warsaw",
    "Europe/Zurich",
    "Pacific/Auckland",
    "Pacific/Fiji",
    "Pacific/Honolulu",
];

/// Large cities without a zone of their own name.
const OTHERS: &[(&str, &str)] = &[
    ("beijing", "Asia/Shanghai"),
    ("boston", "America/New_York"),
    ("delhi", "Asia/Kolkata"),
    ("frankfurt", "Europe/Berlin"),
    ("geneva", "Europe/Zurich"),
    ("gmt", "UTC"),
    ("hamburg", "Europe/Berlin"),
    ("milan", "Europe/Rome"),
    ("mumbai", "Asia/Kolkata"),
    ("munich", "Europe/Berlin"),
    ("osaka", "Asia/Tokyo"),
    ("san francisco", "America/Los_Angeles"),
    ("seattle", "America/Los_Angeles"),
    ("utc", "UTC"),
    ("washington", "America/New_York"),
];

/// Extracts the zones from a text, in order; each leaves a gap.
pub(super) fn take(text: &str, mut found: impl FnMut(&str)) -> String {
    let mut rest: Vec<&str> = Vec::new();
    let tokens: Vec<&str> = text.split_whitespace().collect();
    let mut at = 0;
    while at < tokens.len() {
        // City names have up to three words.
        let zone = (1..=3.min(tokens.len() - at)).rev().find_map(|length| {
            let name = tokens[at..at + length].join(" ");
            let name = name.trim_matches(|c: char| !c.is_alphanumeric());
            zone_of(name).map(|zone| (zone, length))
        });
        match zone {
            Some((zone, length)) => {
                found(&zone);
                rest.push("\u{0}");
                at += length;
            }
            None => {
                rest.push(tokens[at]);
                at += 1;
            }
        }
    }
    rest.join(" ")
}

fn zone_of(name: &str) -> Option<String> {
    if let Some(zone) = ZONES.iter().find(|zone| zone.eq_ignore_ascii_case(name)) {
        return Some((*zone).to_owned());
    }
    // Cities are capitalised; `paris` alone may be a directory.
    if !name.starts_with(char::is_uppercase) {
        return None;
    }
    if let Some((area, place)) = name.split_once('/') {
        let areas = [
            "Africa",
            "America",
            "Antarctica",
            "Asia",
            "Atlantic",
            "Australia",
            "Europe",
            "Indian",
            "Pacific",
            "Etc",
        ];
        return (areas.contains(&area) && !place.contains('.')).then(|| name.to_owned());
    }
    let city = name.to_lowercase();
    ZONES
        .iter()
        .find(|zone| {
            zone.rsplit('/')
                .next()
                .is_some_and(|last| last.replace('_', " ").to_lowercase() == city)
        })
        .copied()
        .or_else(|| {
            OTHERS
                .iter()
                .find(|(other, _)| *other == city)
                .map(|(_, zone)| *zone)
        })
        .map(str::to_owned)
}
