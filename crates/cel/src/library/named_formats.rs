//! The functions of Kubernetes' named formats, such as `format.dns1123Label().validate(name)`.

use crate::budget::{Budget, COPY_BYTES_PER_STEP, charge, steps};
use crate::value::fault::{Fault, Outcome};
use crate::value::named_format::NamedFormat;
use crate::value::{Text, V};

pub(crate) const SIGNATURES: &str = "
format.dns1123Label|format.dns1123LabelPrefix() -> <kubernetes.NamedFormat>
format.dns1123Subdomain|format.dns1123SubdomainPrefix() -> <kubernetes.NamedFormat>
format.dns1035Label|format.dns1035LabelPrefix() -> <kubernetes.NamedFormat>
format.qualifiedName|format.labelValue|format.uri|format.uuid() -> <kubernetes.NamedFormat>
format.byte|format.date|format.datetime() -> <kubernetes.NamedFormat>
format.named(<string>) -> <optional_type(kubernetes.NamedFormat)>
<kubernetes.NamedFormat>.validate(<string>) -> <optional_type(list(string))>
";

/// Calls a function of named formats. A call of `validate` costs one step for its text and one step
/// for each message that it returns. Each 64 bytes of a text or a message cost one more step. The
/// other functions cost nothing.
pub(crate) fn call<'e>(name: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    let charge_bytes =
        |len: usize, budget: &mut Budget| charge(budget, 1 + steps(len, COPY_BYTES_PER_STEP));
    let named = |name| NamedFormat::named(name).map(V::NamedFormat);
    Ok(match (name, args) {
        ("format.named", [V::Str(name)]) => named(name).map_or(V::Optional(None), V::some),
        ("validate", [V::NamedFormat(format), V::Str(text)]) => {
            charge_bytes(text.len(), budget)?;
            let mut messages = Vec::new();
            for message in (format.validate)(text) {
                charge_bytes(message.len(), budget)?;
                messages.push(V::Str(Text::Own(message.into())));
            }
            if messages.is_empty() {
                V::Optional(None)
            } else {
                V::some(V::List(messages.into()))
            }
        }
        (name, []) => name
            .strip_prefix("format.")
            .and_then(named)
            .ok_or(Fault::no_overload())?,
        _ => return Err(Fault::no_overload()),
    })
}
