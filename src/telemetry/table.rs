//! A table of metrics: one row has the field, the type, the name and the help text of a
//! metric. Enters: the rows. Leaves: a struct whose metrics are registered in their order.

/// Declares a struct of metrics and its constructor `register`. A metric is the default of its
/// type, unless its row ends with how it is made.
///
/// Counters get `_total`, and names get no unit from the library. Apart from `_total`, the names
/// in the rows are whole.
macro_rules! metrics {
    ($(#[$attribute:meta])* struct $table:ident {
        $($field:ident: $kind:ty = $name:literal, $help:literal $(, $made:expr)?;)+
    }) => {
        $(#[$attribute])*
        struct $table {
            $($field: $kind,)+
        }

        impl $table {
            fn register(registry: &mut prometheus_client::registry::Registry) -> Self {
                $(
                    let $field: $kind = metrics!(@make $($made)?);
                    registry.register($name, $help, $field.clone());
                )+
                Self { $($field,)+ }
            }
        }
    };
    (@make) => { Default::default() };
    (@make $made:expr) => { $made };
}

pub(super) use metrics;
