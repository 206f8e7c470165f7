# syntax=docker/dockerfile:1

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-s -w -X github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli.version=$VERSION" \
    -o /kubelet-cert-auditor .

FROM gcr.io/distroless/static:nonroot
COPY --from=build /kubelet-cert-auditor /kubelet-cert-auditor
USER 65532:65532
ENTRYPOINT ["/kubelet-cert-auditor"]
