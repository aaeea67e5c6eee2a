//! What stands in the place of what was taken out: a closed list of words.

use crate::blob::BlobSettings;

/// Why an attachment is not there [LIM-2]. Closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unavailable {
    /// It is no base64.
    Base64,
    /// The result has too many.
    Count,
    /// It has not the form that it should have.
    Malformed,
    /// It is larger than all that may be kept.
    Quota,
    /// It is too large itself.
    Size,
    /// It cannot be kept now.
    Storage,
    /// All of the result's together are too large.
    Sum,
    /// It is an image of a kind that is not kept.
    Type,
}

impl Unavailable {
    /// Every reason.
    #[cfg(test)]
    pub(super) const ALL: [Self; 8] =
        [Self::Base64, Self::Count, Self::Malformed, Self::Quota, Self::Size, Self::Storage, Self::Sum, Self::Type];

    const fn why(self) -> &'static str {
        match self {
            Self::Base64 => "not valid base64",
            Self::Count => "too many attachments in one result",
            Self::Malformed => "malformed",
            Self::Quota => "over the storage quota",
            Self::Size => "too large",
            Self::Storage => "cannot be stored",
            Self::Sum => "attachments of one result too large in sum",
            Self::Type => "unsupported image type",
        }
    }

    /// Returns the words that stand instead.
    pub(super) fn words(self) -> String {
        format!("[attachment unavailable: {}]", self.why())
    }
}

/// Returns the words that stand for a document.
pub(super) fn document(place: &str) -> String {
    format!("[Document: {place}]")
}

/// What became of the rest of a text.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rest<'a> {
    /// It is gone.
    Gone,
    /// A link follows in the result.
    Linked,
    /// It can be read there.
    Uri(&'a str),
}

/// Returns the words at the end of a text that was cut, with its sizes.
pub(super) fn cut(shown: usize, total: usize, rest: Rest<'_>) -> String {
    format!("\n[cut by the gateway: {shown} of {total} characters{}]", what_of(rest))
}

/// Returns the words for structured content that was left out.
pub(super) fn left_out(total: usize, rest: Rest<'_>) -> String {
    format!("[structuredContent left out by the gateway: {total} characters{}]", what_of(rest))
}

fn what_of(rest: Rest<'_>) -> String {
    match rest {
        Rest::Gone => "; the rest was dropped".to_owned(),
        Rest::Linked => "; the rest is linked in this result".to_owned(),
        Rest::Uri(uri) => format!("; read on at {uri}"),
    }
}

/// Says what a link to the rest is for.
pub(super) fn how_to_read(from: usize, total: usize, most: usize, age_secs: u64) -> String {
    format!(
        "The rest of a result that was cut: characters {from} to {total}. One read gives at most {most}; ask for others \
         with offset and length. Kept for {age_secs} s."
    )
}

/// Says whether a result with so many bytes can have more attachments than it may, or larger ones [LIM-2].
pub(super) fn can_be_over(bytes: usize, settings: &BlobSettings) -> bool {
    /// `{"type":"image","data":"","mimeType":""},`, less a few.
    const BLOCK_BYTES_MIN: usize = 40;
    bytes > settings.item_bytes_max || bytes > BlobSettings::ITEMS_MAX * BLOCK_BYTES_MIN
}

#[cfg(test)]
mod tests {
    use super::{Rest, Unavailable, can_be_over, cut};
    use crate::blob::BlobSettings;

    /// [LIM-2]: the reasons are a closed list, each with words of its own.
    #[test]
    fn every_reason_has_its_words() {
        let mut words: Vec<String> = Unavailable::ALL.iter().map(|reason| reason.words()).collect();
        assert!(words.iter().all(|words| words.starts_with("[attachment unavailable: ") && words.ends_with(']')));
        words.sort();
        words.dedup();
        assert_eq!(words.len(), Unavailable::ALL.len());
        assert_eq!(cut(1, 20, Rest::Gone), "\n[cut by the gateway: 1 of 20 characters; the rest was dropped]");
    }

    /// [LIM-2]: the smallest result that can be over a cap is looked at.
    #[test]
    fn small_results_need_no_look() {
        let settings = BlobSettings::default();
        let block = br#"{"type":"image","data":"","mimeType":""},"#;
        assert!(can_be_over(block.len() * 65, &settings) && !can_be_over(2_000, &settings));
        assert!(can_be_over(block.len() + 4, &BlobSettings { item_bytes_max: 1, ..settings }));
    }
}
