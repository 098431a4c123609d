# The wheel of this checkout with what it is locked to, on a slim Python, as an ordinary user.
# What is in it and why: docs/install.md.
FROM python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS base

FROM base AS build
WORKDIR /src
COPY requirements-build.lock requirements.lock ./
RUN python -m venv /opt/tools && python -m venv --without-pip /opt/gang-extender
# Only wheels: there is no compiler here, and every architecture gets what the lock names.
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/tools/bin/pip install --require-hashes --only-binary :all: -r requirements-build.lock \
    && /opt/tools/bin/pip --python /opt/gang-extender/bin/python \
    install --no-compile --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY extender extender
# The date of what is built, not of the day: the same commit gives the same wheel.
ARG SOURCE_DATE_EPOCH
RUN /opt/tools/bin/python -m hatchling build --target wheel --directory dist \
    && /opt/tools/bin/pip --python /opt/gang-extender/bin/python \
    install --no-compile --no-deps --no-index dist/*.whl
# The tree is read-only where it runs, so what is imported is compiled here; of the Kubernetes
# client, only what we use of it.
RUN /opt/gang-extender/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash \
    -x 'kubernetes/(aio|client/(api|models))/|/tests/' /opt/gang-extender/lib

FROM base
LABEL org.opencontainers.image.title="gang-extender" \
      org.opencontainers.image.description="Gang admission, DRF order and weighted queues for the stock kube-scheduler" \
      org.opencontainers.image.source="https://github.com/gang-extender/gang-extender" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gang-extender /opt/gang-extender
ENV PATH=/opt/gang-extender/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 8888 8889
ENTRYPOINT ["gang-extender"]
CMD ["serve"]
