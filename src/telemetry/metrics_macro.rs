//! The macro `metrics!`, which declares metrics as a table. Each row of the table has the field,
//! the type, the name and the help text of one metric.

/// Declares a struct of metrics and its constructor `register`, which registers the metrics in the
/// order of the rows.
///
/// A row can end with an expression that creates the metric. Without this expression, the default
/// of the type is used. The Prometheus library adds the suffix `_total` to the names of counters.
/// The library does not add units here, so the names in the table contain the units.
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
