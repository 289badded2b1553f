//! Prepares the arguments of a command line for clap, so that the conventions of kubectl work.
//!
//! kubectl accepts flags before the command, as in `kubectl ifo -n a tree`, so this module moves
//! the command to the front. kubectl also accepts `--watch=false`, so this module lets boolean
//! flags have a value.

use crate::{DEFAULT_COMMAND, PluginCli};
use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use std::ffi::OsString;

/// Returns true if `argument` is a flag whose value is the next argument, such as `--namespace`,
/// `-n` or `-wn`. In `--namespace=a`, `-n=a`, `-na` and `-w=yes`, the value is not in the next
/// argument.
fn awaits_value(flags: &[Arg], argument: &str) -> bool {
    let with_value = || flags.iter().filter(|it| it.get_action().takes_values());
    if let Some(long) = argument.strip_prefix("--") {
        return with_value().any(|it| it.get_long() == Some(long));
    }
    let has_value = |letter: &char| with_value().any(|it| it.get_short() == Some(*letter));
    let mut rest = argument.chars().skip(1).skip_while(|it| !has_value(it));
    !argument.contains('=') && rest.next().is_some() && rest.next().is_none()
}

/// Returns the flags of all commands.
fn all_flags() -> Vec<Arg> {
    let commands = PluginCli::command();
    let nested = commands.get_subcommands();
    let nested = nested.flat_map(Command::get_subcommands);
    let all = commands.get_subcommands().chain(nested);
    all.flat_map(Command::get_arguments).cloned().collect()
}

/// Changes each boolean flag of `command` and its subcommands to kubectl's form: `--watch` means
/// `--watch=true`, and `--watch=false` means that the flag is not set.
pub(crate) fn with_switches(command: Command) -> Command {
    let command = command.mut_args(|it| match it.get_action() {
        ArgAction::SetTrue => it
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .value_name("BOOL")
            .hide_possible_values(true)
            .hide_default_value(true)
            .default_missing_value("true")
            .default_value("false")
            .value_parser(BoolishValueParser::new()),
        _ => it,
    });
    command.mut_subcommands(with_switches)
}

/// Moves the name of the command before all flags: `kubectl ifo -n a tree` becomes `kubectl ifo
/// tree -n a`. If the arguments name no command, as in `kubectl ifo -n a`, inserts `list`. If the
/// first argument asks for the help or the version, changes nothing.
pub(crate) fn with_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let flags = all_flags();
    let mut at = 1;
    while let Some(argument) = arguments.get(at) {
        let argument = argument.to_string_lossy().into_owned();
        match argument.as_str() {
            "-h" | "--help" | "-V" | "--version" if at == 1 => return arguments,
            flag if flag.len() > 1 && flag.starts_with('-') => {
                at += 1 + usize::from(awaits_value(&flags, flag));
            }
            _ => {
                let command = arguments.remove(at);
                arguments.insert(1, command);
                return arguments;
            }
        }
    }
    let index = arguments.len().min(1);
    arguments.insert(index, DEFAULT_COMMAND.into());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(line: &str, change: impl Fn(Vec<OsString>) -> Vec<OsString>) -> String {
        let arguments = line.split(' ').map(OsString::from).collect();
        let changed = change(arguments).into_iter().map(OsString::into_string);
        let changed: Result<Vec<String>, OsString> = changed.collect();
        changed
            .expect("the arguments were created from valid UTF-8")
            .join(" ")
    }

    #[test]
    fn a_command_is_found_in_any_position() {
        for (typed, expected) in [
            ("ifo", "ifo list"),
            ("ifo -A", "ifo list -A"),
            ("ifo -n a", "ifo list -n a"),
            ("ifo -wn a", "ifo list -wn a"),
            ("ifo -An a tree", "ifo tree -An a"),
            ("ifo -nw tree", "ifo tree -nw"),
            ("ifo -n=a tree", "ifo tree -n=a"),
            ("ifo -wA tree", "ifo tree -wA"),
            ("ifo -w=yes tree", "ifo tree -w=yes"),
            ("ifo -n a -o json", "ifo list -n a -o json"),
            ("ifo --context=x summary -A", "ifo summary --context=x -A"),
            ("ifo -n list summary", "ifo summary -n list"),
            ("ifo --for vm/a tree", "ifo tree --for vm/a"),
            ("ifo rules check x", "ifo rules check x"),
            ("ifo --help", "ifo --help"),
            ("ifo -V", "ifo -V"),
            ("ifo nonsense", "ifo nonsense"),
        ] {
            assert_eq!(changed(typed, with_command), expected);
        }
    }
}
