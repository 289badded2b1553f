//! Declares metrics as a table. One row has the field, the type, the name and the help text of one
//! metric.

/// Declares a struct of metrics and its constructor `register`, which registers the metrics in the
/// order of the rows.
///
/// A row can end with an expression that creates the metric. Otherwise the default of its type is
/// used. The library adds the suffix `_total` to the names of counters. It adds no units, so the
/// names contain them.
macro_rules! metrics {
    ($(#[$attribute:meta])* $visible:vis struct $table:ident {
        $($field:ident: $kind:ty = $name:literal, $help:literal $(, $made:expr)?;)+
    }) => {
        $(#[$attribute])*
        $visible struct $table {
            $($field: $kind,)+
        }

        impl $table {
            $visible fn register(registry: &mut prometheus_client::registry::Registry) -> Self {
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
