//! Arguments as people type them for kubectl. Enters: the command line. Leaves: the same,
//! with the command in front, and with switches as the parser knows them.

use super::{Cli, DEFAULT_COMMAND};
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use std::ffi::OsString;

/// The flags of all commands.
pub(super) struct Flags(Vec<Arg>);

/// A switch that is told whether it is on: `--watch=false`, `-Aw=true`.
struct Told<'a> {
    switch: &'a Arg,
    /// The switches before it in the same argument.
    others: &'a str,
    on: bool,
}

impl Flags {
    pub(super) fn all() -> Self {
        let commands = Cli::command();
        let nested = commands
            .get_subcommands()
            .flat_map(Command::get_subcommands);
        let all = commands.get_subcommands().chain(nested);
        Self(all.flat_map(Command::get_arguments).cloned().collect())
    }

    /// The flag that the next argument is the value of: `--namespace`, `-n`, `-wn`.
    pub(super) fn awaiting(&self, argument: &str) -> Option<&Arg> {
        if let Some(long) = argument.strip_prefix("--") {
            let mut flags = self.0.iter().filter(|it| it.get_long() == Some(long));
            return flags.find(|it| it.get_action().takes_values());
        }
        let letters = argument.strip_prefix('-')?;
        let mut flags = letters.char_indices().filter_map(|(at, letter)| {
            let flag = self.with_value(letter)?;
            Some((at + letter.len_utf8(), flag))
        });
        // What follows a letter in the same argument is its value.
        let (end, flag) = flags.next()?;
        (end == letters.len()).then_some(flag)
    }

    /// The flag of this letter, if it takes a value.
    fn with_value(&self, letter: char) -> Option<&Arg> {
        let mut flags = self.0.iter().filter(|it| it.get_short() == Some(letter));
        flags.find(|it| it.get_action().takes_values())
    }

    /// The switch that `fits`, unless another command's flag that does takes a value, as
    /// `--cluster`.
    fn switch(&self, fits: impl Fn(&Arg) -> bool) -> Option<&Arg> {
        let mut named = self.0.iter().filter(|it| fits(it)).peekable();
        let first = named.peek().copied();
        first.filter(|_| named.all(|it| matches!(it.get_action(), ArgAction::SetTrue)))
    }

    fn told<'a>(&'a self, argument: &'a str) -> Option<Told<'a>> {
        let (flag, value) = argument.split_once('=')?;
        let on = match value {
            "true" | "TRUE" | "True" | "t" | "T" | "1" => true,
            "false" | "FALSE" | "False" | "f" | "F" | "0" => false,
            _ => return None,
        };
        if let Some(long) = flag.strip_prefix("--") {
            return Some(Told {
                switch: self.switch(|it| it.get_long() == Some(long))?,
                others: "",
                on,
            });
        }
        let letters = flag.strip_prefix('-')?;
        let (at, letter) = letters.char_indices().next_back()?;
        let others = &letters[..at];
        let switch = |letter| self.switch(|it| it.get_short() == Some(letter));
        others
            .chars()
            .all(|it| switch(it).is_some())
            .then_some(())?;
        Some(Told {
            switch: switch(letter)?,
            others,
            on,
        })
    }

    /// What is left of an argument without this switch.
    fn without(&self, argument: OsString, switch: &Arg) -> Option<OsString> {
        let Some(text) = argument.to_str() else {
            return Some(argument);
        };
        if let Some(long) = text.strip_prefix("--") {
            return (switch.get_long() != Some(long)).then_some(argument);
        }
        let Some(letters) = text.strip_prefix('-').filter(|it| !it.is_empty()) else {
            return Some(argument);
        };
        let end = letters
            .find(|it: char| self.with_value(it).is_some())
            .unwrap_or(letters.len());
        let (switches, rest) = letters.split_at(end);
        let mut left = switches.replace(|it: char| switch.get_short() == Some(it), "");
        left += rest;
        (!left.is_empty()).then(|| format!("-{left}").into())
    }
}

/// The arguments with switches as the parser knows them: kubectl takes `--watch=true` for
/// `--watch`, and `--watch=false` for none. Of several the last one counts.
pub(super) fn switched(arguments: Vec<OsString>) -> Vec<OsString> {
    let flags = Flags::all();
    let mut out: Vec<OsString> = Vec::with_capacity(arguments.len());
    let mut arguments = arguments.into_iter();
    for argument in arguments.by_ref() {
        if argument == "--" {
            out.push(argument);
            break;
        }
        let text = argument.to_str().unwrap_or_default();
        let Some(Told { switch, others, on }) = flags.told(text) else {
            out.push(argument);
            continue;
        };
        if !others.is_empty() {
            out.push(format!("-{others}").into());
        }
        match switch.get_long() {
            Some(long) if on => out.push(format!("--{long}").into()),
            _ => {
                let before = out.into_iter();
                let left = before.filter_map(|it| flags.without(it, switch));
                out = left.collect();
            }
        }
    }
    out.extend(arguments);
    out
}

/// The arguments with the command in front: `kubectl ifo -n a tree` is what people type,
/// and `kubectl ifo -n a` lists.
pub(super) fn with_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let flags = Flags::all();
    let mut at = 1;
    while let Some(argument) = arguments
        .get(at)
        .map(|it| it.to_string_lossy().into_owned())
    {
        match argument.as_str() {
            "-h" | "--help" | "-V" | "--version" if at == 1 => return arguments,
            flag if flag.len() > 1 && flag.starts_with('-') => {
                at += 1 + usize::from(flags.awaiting(flag).is_some());
            }
            _ => {
                let command = arguments.remove(at);
                arguments.insert(1, command);
                return arguments;
            }
        }
    }
    let place = arguments.len().min(1);
    arguments.insert(place, DEFAULT_COMMAND.into());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(line: &str, change: impl Fn(Vec<OsString>) -> Vec<OsString>) -> String {
        let arguments = line.split(' ').map(OsString::from).collect();
        let changed = change(arguments).into_iter().map(OsString::into_string);
        let changed: Result<Vec<String>, OsString> = changed.collect();
        changed.expect("it was text before").join(" ")
    }

    #[test]
    fn a_command_is_found_wherever_it_stands() {
        for (typed, read) in [
            ("ifo", "ifo list"),
            ("ifo -A", "ifo list -A"),
            ("ifo -n a", "ifo list -n a"),
            ("ifo -wn a", "ifo list -wn a"),
            ("ifo -An a tree", "ifo tree -An a"),
            ("ifo -nw tree", "ifo tree -nw"),
            ("ifo -n=a tree", "ifo tree -n=a"),
            ("ifo -wA tree", "ifo tree -wA"),
            ("ifo -n a -o json", "ifo list -n a -o json"),
            ("ifo --context=x summary -A", "ifo summary --context=x -A"),
            ("ifo -n list summary", "ifo summary -n list"),
            ("ifo --for vm/a tree", "ifo tree --for vm/a"),
            ("ifo rules check x", "ifo rules check x"),
            ("ifo --help", "ifo --help"),
            ("ifo -V", "ifo -V"),
            ("ifo nonsense", "ifo nonsense"),
        ] {
            assert_eq!(changed(typed, with_command), read);
        }
    }

    #[test]
    fn of_a_switch_that_is_told_twice_the_last_counts() {
        for (typed, read) in [
            ("ifo --watch=true", "ifo --watch"),
            ("ifo -w=true", "ifo --watch"),
            ("ifo -Aw=1", "ifo -A --watch"),
            ("ifo -w --watch=false", "ifo"),
            ("ifo --watch -w=false", "ifo"),
            ("ifo -Aw --watch=false", "ifo -A"),
            ("ifo -wn a --watch=false", "ifo -n a"),
            ("ifo -nw --watch=false", "ifo -nw"),
            ("ifo -w=false -w", "ifo -w"),
            ("ifo -n=true", "ifo -n=true"),
            ("ifo -w=perhaps", "ifo -w=perhaps"),
            ("ifo -- -w=false", "ifo -- -w=false"),
        ] {
            assert_eq!(changed(typed, switched), read, "{typed}");
        }
    }
}
