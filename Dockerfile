# syntax=docker/dockerfile:1
# One static binary, in an image with nothing else.
#
#   docker build --build-arg REVISION="$(git rev-parse HEAD)" -t cpuwarden .

FROM rust:1.95-bookworm AS build
ARG TARGET=x86_64-unknown-linux-gnu
ARG REVISION=unknown
WORKDIR /src
COPY . .
# With an explicit target the flag does not reach build scripts and procedural macros, which cannot be static.
ENV RUSTFLAGS="-C target-feature=+crt-static" CPUWARDEN_REVISION="$REVISION"
# The registry and the dependencies stay in the builder's cache: a change of ours compiles only what is ours.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release --target "$TARGET" --package cpuwarden \
    && cp "target/$TARGET/release/cpuwarden" /cpuwarden

FROM scratch
ARG REVISION=unknown
LABEL org.opencontainers.image.title="cpuwarden" \
      org.opencontainers.image.description="Per-node Kubernetes agent: CPU throttling, contention and placement, every second" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /cpuwarden /cpuwarden
USER 65532:65532
EXPOSE 9753
ENTRYPOINT ["/cpuwarden"]
CMD ["run"]
