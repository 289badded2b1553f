//! The macro `metrics!`, which declares metrics as a table. Each row of the table has the field,
//! the type, the name and the help text of one metric.

/// Declares a struct of metrics and its constructor `register`, which registers the metrics in the
/// order of the rows.
///
/// A row can end with an expression that creates the metric. Without this expression, the macro
/// uses the default of the type. The Prometheus library adds the suffix `_total` to the names of
/// counters. The name in a row contains the unit, such as `_seconds`.
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
