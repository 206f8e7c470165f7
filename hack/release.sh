#!/bin/bash
# Writes dist/release: what a release consists of, the same bytes each time.
# Usage: hack/release.sh VERSION "OS/ARCH ..."
set -euo pipefail
cd "$(dirname "$0")/.."

version=$1 platforms=$2
if [[ ! $version =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "error: VERSION=\"$version\": must be a semantic version such as v1.2.3" >&2
	exit 3
fi
if ! command -v jq >/dev/null; then
	echo "error: jq is not installed" >&2
	exit 3
fi
if [[ -n $(git status --porcelain) ]]; then
	echo "error: there are changes that are not committed: a release is of a commit" >&2
	exit 3
fi
# What else would differ from one machine to the next.
export CGO_ENABLED=0 GOFLAGS='' GOEXPERIMENT='' GOWORK=off GOAMD64=v1 GOARM64=v8.0 LC_ALL=C
umask 022
name=kubelet-cert-auditor
module=github.com/kubelet-cert-auditor/kubelet-cert-auditor
image=${IMAGE:-ghcr.io/kubelet-cert-auditor/kubelet-cert-auditor}
# The time of the commit stands for every time.
epoch=$(git log -1 --format=%ct)
final=dist/release
mkdir -p bin
work=$(mktemp -d "$PWD/bin/release-XXXXXX") # nothing half-written in dist/release
trap 'rm -rf "$work"' EXIT
out=$work/out
mkdir "$out"

# pack FILE ENTRY... : a tar archive without anything of this machine.
pack() {
	local file=$1
	shift
	tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' -C "$work/in" -cf - "$@" | gzip -n -9 >"$file"
}

for platform in $platforms; do
	os=${platform%/*} arch=${platform#*/} suffix=
	[[ $os == windows ]] && suffix=.exe
	echo "building $os/$arch"
	rm -rf "$work/in"
	mkdir "$work/in"
	GOOS=$os GOARCH=$arch go build -trimpath -buildvcs=false \
		-ldflags "-s -w -buildid= -X $module/internal/cli.version=$version" -o "$work/in/$name$suffix" .
	# As a plugin it has another name, which krew gives it.
	cp LICENSE "$work/in/"
	pack "$out/${name}_${version}_${os}_${arch}.tar.gz" "$name$suffix" LICENSE
	# A serial number and a time would differ from run to run.
	GOOS=$os GOARCH=$arch bin/cyclonedx-gomod app -json -licenses -noserial -packages -main . -output "$work/sbom.json" . 2>"$work/sbom.log" ||
		{ cat "$work/sbom.log" >&2; exit 1; }
	jq --arg v "$version" 'del(.metadata.timestamp) | .metadata.component.version = $v | del(.metadata.component.purl, .metadata.component."bom-ref")
		| .metadata.component."bom-ref" = "kubelet-cert-auditor@" + $v' "$work/sbom.json" >"$out/${name}_${version}_${os}_${arch}.cdx.json"
done

# The manifests name the image of this release.
rm -rf "$work/in"
mkdir -p "$work/in/config"
cp -r config/. "$work/in/config/"
(cd "$work/in/config/manager" && "$OLDPWD/bin/kustomize" edit set image "$name=$image:$version")
bin/kustomize build "$work/in/config/default" -o "$out/install.yaml"

cp -r dist/chart "$work/in/$name"
sed -i "s/^version: .*/version: ${version#v}/; s/^appVersion: .*/appVersion: $version/" "$work/in/$name/Chart.yaml"
sed -i "s#^  repository: .*#  repository: $image#" "$work/in/$name/values.yaml"
bin/helm lint --strict --quiet "$work/in/$name"
pack "$out/$name-${version#v}.tgz" "$name"

hash_of() { sha256sum "$1" | cut -d' ' -f1; }
{
	cat <<-MANIFEST
		apiVersion: krew.googlecontainertools.github.com/v1alpha2
		kind: Plugin
		metadata:
		  name: kubelet-certs
		spec:
		  version: $version
		  homepage: https://$module
		  shortDescription: Audit kubelets' serving certificates
		  description: |
		    Says which nodes would lose logs and exec if kube-apiserver checked the common
		    name of kubelets' serving certificates (KEP-4872), why, and what to do.
		  platforms:
	MANIFEST
	for platform in $platforms; do
		os=${platform%/*} arch=${platform#*/} suffix=
		[[ $os == windows ]] && suffix=.exe
		archive=${name}_${version}_${os}_${arch}.tar.gz
		cat <<-MANIFEST
			  - selector:
			      matchLabels:
			        os: $os
			        arch: $arch
			    uri: https://$module/releases/download/$version/$archive
			    sha256: $(hash_of "$out/$archive")
			    bin: kubectl-kubelet_certs$suffix
			    files:
			    - from: $name$suffix
			      to: kubectl-kubelet_certs$suffix
			    - from: LICENSE
			      to: .
		MANIFEST
	done
} >"$out/kubelet-certs.yaml"

(cd "$out" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
rm -rf "$final"
mkdir -p "$(dirname "$final")"
mv "$out" "$final"
cat "$final/SHA256SUMS"
