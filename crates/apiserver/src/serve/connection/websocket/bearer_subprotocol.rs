//! Reads the bearer token of a WebSocket request. A browser cannot set the header `Authorization`
//! of such a request. So Kubernetes accepts the token as one of the subprotocols that the client
//! offers.

use crate::auth::Unauthenticated;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, header};

/// Start of the subprotocol that contains the token. The token follows in base64url without
/// padding.
const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Moves the token from the subprotocols to the header `Authorization`. Does nothing if no
/// subprotocol contains a token. The answer of the server repeats one subprotocol of the client. As
/// in the kube-apiserver, the client must also offer a subprotocol without a token, so that the
/// answer does not contain the token.
pub fn move_token_to_authorization(headers: &mut HeaderMap) -> Result<(), Unauthenticated> {
    let mut others = Vec::new();
    let mut token = None;
    for value in headers.get_all(header::SEC_WEBSOCKET_PROTOCOL) {
        let value = value.to_str().map_err(|_| Unauthenticated)?;
        for subprotocol in value.split(',').map(str::trim) {
            match subprotocol.strip_prefix(PREFIX) {
                None => others.push(subprotocol),
                Some(_) if token.is_some() => return Err(Unauthenticated),
                Some(encoded) => token = Some(encoded),
            }
        }
    }
    let Some(token) = token else {
        return Ok(());
    };
    if others.is_empty() || headers.contains_key(header::AUTHORIZATION) {
        return Err(Unauthenticated);
    }
    let token = URL_SAFE_NO_PAD.decode(token).map_err(|_| Unauthenticated)?;
    let credentials = HeaderValue::from_bytes(&[b"Bearer ", token.as_slice()].concat());
    let mut credentials = credentials.map_err(|_| Unauthenticated)?;
    credentials.set_sensitive(true);
    let others = HeaderValue::try_from(others.join(",")).map_err(|_| Unauthenticated)?;
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, others);
    headers.insert(header::AUTHORIZATION, credentials);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(subprotocols: &[&str]) -> Result<(Option<String>, String), Unauthenticated> {
        let mut headers = HeaderMap::new();
        for value in subprotocols {
            headers.append(header::SEC_WEBSOCKET_PROTOCOL, value.parse().unwrap());
        }
        move_token_to_authorization(&mut headers)?;
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let credentials = headers.get(header::AUTHORIZATION).map(text);
        let rest = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
        Ok((credentials, rest.map(text).collect::<Vec<_>>().join(";")))
    }

    #[test]
    fn a_token_moves_from_the_subprotocols_to_the_authorization() {
        let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode("a.b-c"));
        let moved_token = Some("Bearer a.b-c".to_owned());
        let both = format!("{token}, base64.binary.k8s.io");
        assert_eq!(
            moved(&[&both]),
            Ok((moved_token.clone(), "base64.binary.k8s.io".to_owned()))
        );
        assert_eq!(moved(&["x", &token]), Ok((moved_token, "x".to_owned())));
        assert_eq!(moved(&["x, y"]), Ok((None, "x, y".to_owned())));
        assert_eq!(moved(&[]), Ok((None, String::new())));
    }

    #[test]
    fn an_invalid_token_is_refused() {
        let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode("a"));
        let line_feed = format!("x,{PREFIX}{}", URL_SAFE_NO_PAD.encode("a\nb"));
        for subprotocols in [
            token.clone(),
            format!("x,{token},{token}"),
            format!("x,{PREFIX}!"),
            line_feed,
        ] {
            assert_eq!(
                moved(&[&subprotocols]),
                Err(Unauthenticated),
                "{subprotocols}"
            );
        }
    }
}
