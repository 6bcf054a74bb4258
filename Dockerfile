# syntax=docker/dockerfile:1
# docker build -t bnncert . && docker run --rm bnncert demo; docs/install.md says more.
FROM python:3.12-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN --mount=type=cache,target=/root/.cache/pip pip wheel --no-deps --wheel-dir dist .

FROM python:3.12-slim
WORKDIR /install
COPY --from=wheel /source/dist .
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install "$(ls ./bnncert-*.whl)[replay,images,larq,vnnlib,experiments]"
# Any user may run it, for example the owner of the files in /data; HOME is where libraries keep caches.
ENV HOME=/tmp
USER 1000:1000
WORKDIR /data
ENTRYPOINT ["bnncert"]
CMD ["--help"]
