//! Numbered lists of saved decisions, which are revoked by their number.

use super::Console;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{FAINT, NAME, Name, STRONG, Text, text};

/// Entry of a list.
pub(crate) struct Entry<'a> {
    /// Name of the tool or component.
    pub(crate) name: &'a str,
    pub(crate) detail: Text,
    pub(crate) digest: &'a str,
}

/// Prints a list with numbers from 1, or the note `none` if it is empty.
pub(crate) fn print(console: &Console, none: &'static str, entries: &[Entry<'_>]) -> Result<(), Failure> {
    if entries.is_empty() {
        console.note(none);
        return Ok(());
    }
    console.write(|s| {
        for (i, entry) in entries.iter().enumerate() {
            s.out.styled(NAME, text!("{}  ", i + 1))?;
            s.out.styled(STRONG, text!("{}", Name(entry.name)))?;
            s.out.styled(FAINT, text!("  {}", entry.digest))?;
            // Last: what others wrote could end like the rest of the line.
            s.out.text(text!("  {}", entry.detail))?;
            s.out.end_line()?;
        }
        s.out.flush()
    })?;
    Ok(())
}

/// Removes the entry with this number, or all entries.
///
/// # Errors
/// Returns a usage error if there is no such entry; `list` is the command that shows the numbers.
pub(crate) fn remove<T>(
    entries: &mut Vec<T>,
    number: Option<u32>,
    list: &'static str,
) -> Result<(), Failure> {
    let Some(number) = number else {
        entries.clear();
        return Ok(());
    };
    match usize::try_from(number)
        .ok()
        .and_then(|number| number.checked_sub(1))
    {
        Some(index) if index < entries.len() => {
            entries.remove(index);
            Ok(())
        }
        _ => Err(Failure::new(Exit::Usage, text!("there is no entry {}", number))
            .hint(text!("`{}` lists them", list))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_is_removed_by_its_number_from_one() {
        let remove = |number| {
            let mut entries = vec!['a', 'b'];
            remove(&mut entries, number, "toolcell x").map(|()| entries).ok()
        };
        assert_eq!(remove(Some(1)), Some(vec!['b']));
        assert_eq!(remove(Some(2)), Some(vec!['a']));
        assert_eq!((remove(Some(0)), remove(Some(3))), (None, None));
        assert_eq!(remove(None), Some(Vec::new()));
    }
}
