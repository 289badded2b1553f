//! Declares metrics as a table. One row has the field, the type, the name and the help text of one
//! metric.

/// Declares a struct of metrics and its constructor `register`, which registers the metrics in the
/// order of the rows.
///
/// A row can end with an expression that creates the metric. Otherwise the default of its type is
/// used. Counters get the suffix `_total`. The library adds no unit, so names contain their unit.
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
