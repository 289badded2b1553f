//! Shortens texts of clients before they appear in an answer or in the log.

/// Shortens `text` to at most `max_bytes` bytes and an ellipsis.
pub fn clip(text: &mut String, max_bytes: usize) {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push('…');
    }
}
