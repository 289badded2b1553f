# syntax=docker/dockerfile:1
# The image contains one file: the static binary of the server. It needs no base image, because the
# server reads the certificates of the cluster from its ServiceAccount, and writes no files.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cp "$(.ci/static-binary)" /ifo-apiserver

FROM scratch
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ifo-apiserver" \
      org.opencontainers.image.description="Shows which operations are in flight in a Kubernetes cluster" \
      org.opencontainers.image.source="https://github.com/kubevirt/ifo" \
      org.opencontainers.image.documentation="https://github.com/kubevirt/ifo/blob/main/docs/installation.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /ifo-apiserver /ifo-apiserver
USER 65532:65532
EXPOSE 8443
ENTRYPOINT ["/ifo-apiserver"]
