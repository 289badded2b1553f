# The image of the bundle: docker build -f deploy/olm/bundle.Dockerfile deploy/olm
FROM scratch
LABEL operators.operatorframework.io.bundle.mediatype.v1=registry+v1 \
      operators.operatorframework.io.bundle.manifests.v1=manifests/ \
      operators.operatorframework.io.bundle.metadata.v1=metadata/ \
      operators.operatorframework.io.bundle.package.v1=ifo \
      operators.operatorframework.io.bundle.channels.v1=alpha \
      operators.operatorframework.io.bundle.channel.default.v1=alpha \
      operators.operatorframework.io.test.mediatype.v1=scorecard+v1 \
      operators.operatorframework.io.test.config.v1=tests/scorecard/
COPY manifests /manifests/
COPY metadata /metadata/
COPY tests/scorecard /tests/scorecard/
