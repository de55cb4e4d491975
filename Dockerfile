# One static binary, in an image with nothing else: no base image, and no `demo`, `top`, `completions` or `man` in it.
#
#   docker build --build-arg REVISION="$(git rev-parse HEAD)" -t cpuwarden .
#
# For builds by hand; releases are built without Docker (cargo xtask image). BUILDER is an image with Rust 1.95 and a C
# compiler. The tag that it defaults to may move: give IMAGE@sha256:DIGEST where that matters.

ARG BUILDER=docker.io/library/rust:1.95-bookworm
FROM ${BUILDER} AS build
# Empty: the machine on which the image is built.
ARG TARGET=""
ARG REVISION=unknown
WORKDIR /src
COPY . .
# With an explicit target the flag does not reach build scripts and procedural macros, which cannot be static.
# Packed relocations are a few kilobytes instead of half a megabyte of the program; a linker without them ignores the flag.
ENV RUSTFLAGS="-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs" CPUWARDEN_REVISION="$REVISION"
# The registry and the dependencies stay in the builder's cache: a change of ours compiles only what is ours.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    target="${TARGET:-$(rustc --print host-tuple)}" \
    && cargo build --locked --profile dist --target "$target" --package cpuwarden --no-default-features \
    && cp "target/$target/dist/cpuwarden" /cpuwarden

FROM scratch
ARG REVISION=unknown
LABEL org.opencontainers.image.title="cpuwarden" \
      org.opencontainers.image.description="Per-node Kubernetes agent: CPU throttling, contention and placement, every second" \
      org.opencontainers.image.licenses="Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)" \
      org.opencontainers.image.revision="$REVISION"
COPY LICENSE crates/sched-trace/bpf/LICENSE-* /
COPY --from=build /cpuwarden /cpuwarden
USER 65532:65532
EXPOSE 9753
ENTRYPOINT ["/cpuwarden"]
CMD ["run"]
