# syntax=docker/dockerfile:1
# One static binary on an image without a shell. The C runtime is linked in, which
# needs an explicit target, or the proc-macros would be linked statically too.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends make perl && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ENV RUSTFLAGS="-C target-feature=+crt-static"
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    target="$(rustc -vV | sed -n 's/^host: //p')" && \
    cargo build --locked --release --features vendored-openssl --target "$target" --package ifo --bin ifo-apiserver && \
    cp "target/$target/release/ifo-apiserver" /ifo-apiserver

FROM gcr.io/distroless/static-debian12:nonroot
LABEL org.opencontainers.image.title="ifo-apiserver" \
      org.opencontainers.image.description="Shows which operations are in flight in a Kubernetes cluster" \
      org.opencontainers.image.source="https://github.com/kubevirt/ifo" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /ifo-apiserver /ifo-apiserver
USER 65532:65532
EXPOSE 8443
ENTRYPOINT ["/ifo-apiserver"]
