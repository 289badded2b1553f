//! Shortens texts of clients before they appear in an answer or in the log.

/// Returns `text`, shortened to at most `max_bytes` bytes and an ellipsis.
pub fn clip(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push('…');
    }
    text
}
