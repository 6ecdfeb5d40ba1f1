//! "Did you mean": the name that was probably meant.

/// A longer text is not a slip of the pen, and not worth comparing.
const CHARS_MAX: usize = 128;

/// The name most like `seen`, if one is near enough to have been meant: at
/// most about a third of its letters differ.
pub(super) fn nearest<'a>(seen: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if seen.chars().nth(CHARS_MAX).is_some() {
        return None;
    }
    let longest = |name: &str| seen.chars().count().max(name.chars().count());
    let distances = names.into_iter().map(|name| (distance(seen, name), name));
    let near = distances.filter(|(distance, name)| *distance <= (longest(name) + 1) / 3);
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// The end of a sentence that suggests the nearest name; empty if no name is near.
pub(super) fn did_you_mean<'a>(seen: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(seen, names).map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

/// How many letters have to be added, dropped, replaced or swapped with their
/// neighbour to turn one text into the other. Ignores case.
pub(super) fn distance(one: &str, other: &str) -> usize {
    let [one, other] = [one, other].map(|text| text.to_lowercase().chars().collect::<Vec<_>>());
    // Row i, column j: the distance from the first i letters to the first j.
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, wanted) in other.iter().enumerate() {
            let replaced = last[j] + usize::from(letter != wanted);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *wanted {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_added_dropped_replaced_and_swapped_letters() {
        for (one, other, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("lanes", "Lanes", 0),
            ("lanes", "lane", 1),
            ("lanes", "lances", 1),
            ("lanes", "lames", 1),
            ("lihgt", "light", 1),
            ("kitten", "sitting", 3),
            ("größe", "grösse", 2),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let names = ["ws/light", "ws/heavy", "http/heavy"];
        assert_eq!(nearest("ws/lihgt", names), Some("ws/light"));
        assert_eq!(nearest("heavy", names), Some("ws/heavy"));
        assert_eq!(nearest("banana", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest("a", ["b"]), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), names), None);
    }
}
