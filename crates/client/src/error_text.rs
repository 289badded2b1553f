//! Formats an error with its sources as one line.

use kube::client::AuthError;
use kube::config::KubeconfigError;
use std::error::Error;

/// Returns the texts of the error and of its sources on one line, joined with ": ". The text of a
/// source is left out if the result already contains it, because many errors repeat their source.
///
/// The texts of some errors of the kube crate are replaced by `short_text`. If the login command of
/// a kubeconfig failed, the result is only `text_of_failed_login`.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(text) = text_of_failed_login(error) {
            return one_line(&text);
        }
        let own = error.to_string();
        next = error.source();
        let shown = short_text(error).unwrap_or_else(|| own.clone());
        if shown != own {
            text = text.replace(&own, &shown);
            next = None;
        }
        if !text.contains(&shown) {
            text.push_str(": ");
            text.push_str(&shown);
        }
    }
    one_line(&text)
}

/// Returns a shorter text for an error of the kube crate whose own text contains too much. None for
/// another error.
///
/// - If the kube-apiserver refused a request, this is the message of the kube-apiserver. The text of
///   the error itself also contains a debug dump of the whole `Status`.
/// - If a kubeconfig is invalid, this is only the number of the invalid line. The text of the error
///   itself also quotes lines of the file, which can contain tokens.
fn short_text(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(KubeconfigError::Parse(error)) = error.downcast_ref() {
        let line = error.location().map_or(0, |it| it.line());
        return Some(format!("the kubeconfig is invalid at line {line}"));
    }
    match error.downcast_ref()? {
        kube::Error::Api(status) if status.message.is_empty() => {
            Some(format!("refused with the code {}", status.code))
        }
        kube::Error::Api(status) => Some(status.message.clone()),
        _ => None,
    }
}

/// Returns a text about a failed login command. Unlike the text of the kube crate, it contains
/// neither the output of the command, which can be a token, nor its environment. None for another
/// error.
fn text_of_failed_login(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref()? {
        AuthError::AuthExecRun { out, .. } => {
            let errors = String::from_utf8_lossy(&out.stderr);
            Some(format!(
                "the login command failed with {}: {errors}",
                out.status
            ))
        }
        AuthError::AuthExecParse(_) => {
            Some("the login command did not print a valid ExecCredential".to_owned())
        }
        _ => None,
    }
}

/// Replaces each sequence of white space characters, including line ends, by one space. White space
/// at the beginning and at the end is removed.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::watcher;
    use std::fmt;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|it| it as _)
        }
    }

    /// Returns an error with the first of `texts`. The chain of its sources has the other texts.
    fn error(texts: &[&'static str]) -> Layer {
        let (first, rest) = texts.split_first().unwrap();
        let source = (!rest.is_empty()).then(|| Box::new(error(rest)));
        Layer(first, source)
    }

    #[test]
    fn an_error_is_followed_by_its_sources() {
        assert_eq!(chain(&error(&["a"])), "a");
        assert_eq!(chain(&error(&["a", "b", "c"])), "a: b: c");
    }

    #[test]
    fn a_source_is_omitted_if_the_text_already_contains_it() {
        let repeats = error(&["cannot connect: refused", "refused", "os error 111"]);
        assert_eq!(chain(&repeats), "cannot connect: refused: os error 111");
    }

    #[cfg(unix)]
    #[test]
    fn an_error_contains_neither_output_nor_environment_of_a_login_command() {
        use std::os::unix::process::ExitStatusExt as _;
        let run = AuthError::AuthExecRun {
            cmd: "SECRET=1 login".to_owned(),
            out: Box::new(std::process::Output {
                status: std::process::ExitStatus::from_raw(256),
                stdout: b"token".to_vec(),
                stderr: b"no\nsession\n".to_vec(),
            }),
        };
        let failed = "the login command failed with exit status: 1: no session";
        // When a client is created, this is `kube::Error::Auth`. When the client renews its token
        // later, it is `kube::Error::Service`.
        let refresh = |it: AuthError| kube::Error::Service(Box::new(it));
        assert_eq!(chain(&refresh(run)), failed);
        let parse = serde_saphyr::from_str::<u8>("token").unwrap_err();
        let parse = kube::Error::Auth(AuthError::AuthExecParse(Box::new(parse)));
        let invalid = "the login command did not print a valid ExecCredential";
        assert_eq!(chain(&parse), invalid);
    }

    #[test]
    fn an_error_contains_no_line_of_an_invalid_kubeconfig() {
        let parse = serde_saphyr::from_str::<Vec<u8>>("- token\n").unwrap_err();
        let invalid = KubeconfigError::Parse(Box::new(parse));
        assert_eq!(chain(&invalid), "the kubeconfig is invalid at line 1");
        let inferred = kube::Error::InferKubeconfig(invalid);
        assert!(!chain(&inferred).contains("token"), "{}", chain(&inferred));
    }

    #[test]
    fn a_refusal_of_the_kube_apiserver_is_its_message() {
        let status = |message| kube::core::Status::failure(message, "Forbidden").with_code(403);
        let refused = |message| kube::Error::Api(Box::new(status(message)));
        assert_eq!(chain(&refused("no right")), "no right");
        assert_eq!(chain(&refused("")), "refused with the code 403");
        let watch = watcher::Error::WatchStartFailed(refused("no right"));
        assert_eq!(chain(&watch), "failed to start watching object: no right");
    }

    #[test]
    fn a_text_of_several_lines_becomes_one_line() {
        let lines = error(&["no\r\nanswer", "\tfrom  the\nserver\n"]);
        assert_eq!(chain(&lines), "no answer: from the server");
    }
}
