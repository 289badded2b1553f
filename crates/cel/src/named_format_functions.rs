//! The functions of Kubernetes' named formats, such as `format.dns1123Label().validate(name)`.

use super::Budget;
use super::conversions::COPY_BYTES_PER_STEP;
use super::named_format::NamedFormat;
use super::op::Function;
use super::strings::no_overload;
use super::value::{Fault, Text, V, charge, steps};

/// Calls a function of named formats. A call costs one step for 64 bytes that it reads or creates.
pub(super) fn call<'e>(
    function: Function,
    args: &[V<'e>],
    budget: &mut Budget,
) -> Result<V<'e>, Fault<'e>> {
    let charge_bytes =
        |len: usize, budget: &mut Budget| charge(budget, 1 + steps(len, COPY_BYTES_PER_STEP));
    Ok(match (function, args) {
        (Function::ConstantFormat(format), []) => V::NamedFormat(format),
        (Function::NamedFormat, [V::Str(name)]) => NamedFormat::named(name)
            .map_or(V::Optional(None), |format| V::some(V::NamedFormat(format))),
        (Function::Validate, [V::NamedFormat(format), V::Str(text)]) => {
            charge_bytes(text.len(), budget)?;
            let mut messages = Vec::new();
            for message in format.validate(text) {
                charge_bytes(message.len(), budget)?;
                messages.push(V::Str(Text::Own(message.into())));
            }
            if messages.is_empty() {
                V::Optional(None)
            } else {
                V::some(V::List(messages.into()))
            }
        }
        _ => return Err(no_overload(function, args)),
    })
}
