# The wheel of this checkout on a slim Python, as an ordinary user.
FROM python:3.13-slim AS build
WORKDIR /src
RUN pip install --no-cache-dir build==1.3.0 hatchling==1.33.0
COPY pyproject.toml README.md LICENSE ./
COPY extender extender
RUN python -m build --wheel --no-isolation --outdir /dist

FROM python:3.13-slim
COPY requirements.lock /tmp/requirements.lock
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements.lock
COPY --from=build /dist/*.whl /tmp/
RUN pip install --no-cache-dir --no-deps /tmp/*.whl \
    && rm -f /tmp/*.whl /tmp/requirements.lock \
    && useradd --system --uid 10001 --no-create-home extender
USER 10001
EXPOSE 8888 8889
ENTRYPOINT ["gang-extender"]
CMD ["serve"]
