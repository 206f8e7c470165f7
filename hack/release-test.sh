#!/bin/bash
# Makes a release of HEAD twice, from clones in two places, and fails unless every
# byte is the same and the checksums are those of what is there.
# Usage: hack/release-test.sh "OS/ARCH ..."
set -euo pipefail
cd "$(dirname "$0")/.."

platforms=$1
version=v0.0.1-test
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for clone in one another/and-deeper; do
	git clone -q . "$work/$clone"
	mkdir -p "$work/$clone/bin"
	cp bin/helm bin/kustomize bin/cyclonedx-gomod "$work/$clone/bin/"
	(cd "$work/$clone" && hack/release.sh "$version" "$platforms") >"$work/log" || { cat "$work/log" >&2; exit 1; }
	(cd "$work/$clone/dist/release" && sha256sum --quiet --strict -c SHA256SUMS)
done
diff -r "$work/one/dist/release" "$work/another/and-deeper/dist/release"

release=$work/one/dist/release
host=$(go env GOHOSTOS)_$(go env GOHOSTARCH)
tar -C "$work" -xzf "$release/kubelet-cert-auditor_${version}_$host.tar.gz"
"$work/kubelet-cert-auditor" version | grep -qF "$version"
grep -qF ":$version" "$release/install.yaml"
for platform in $platforms; do
	file=kubelet-cert-auditor_${version}_${platform/\//_}
	for want in "$file.tar.gz" "$file.cdx.json"; do
		grep -qF "  $want" "$release/SHA256SUMS" || { echo "$want is missing" >&2; exit 1; }
	done
	grep -qF "sha256: $(sha256sum "$release/$file.tar.gz" | cut -d' ' -f1)" "$release/kubelet-certs.yaml"
	jq -e '.bomFormat == "CycloneDX" and (.components | length > 50)' "$release/$file.cdx.json" >/dev/null
done
cat "$release/SHA256SUMS"
