package compact_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/compact"
)

func TestAnInstantIsTheTimeItWasMadeOf(t *testing.T) {
	now := time.Now()
	for _, at := range []time.Time{
		now, now.Add(time.Nanosecond), now.Add(-time.Hour), now.Add(24 * time.Hour),
		now.Round(0), time.Date(2026, 3, 1, 12, 0, 0, 1, time.UTC), {},
	} {
		if got := compact.InstantOf(at).Time(); !got.Equal(at) {
			t.Errorf("%s came back as %s", at, got)
		}
	}
	if !compact.InstantOf(time.Time{}).Time().IsZero() {
		t.Error("none is a time")
	}
	if compact.InstantOf(now) >= compact.InstantOf(now.Add(1)) {
		t.Error("a later one is not larger")
	}
}

// With a wall clock alone, one that is set back would put off what was planned.
func TestAnInstantIsMonotonic(t *testing.T) {
	if at := compact.InstantOf(time.Now()).Time(); !strings.Contains(at.String(), " m=+") {
		t.Errorf("%s has no monotonic reading", at)
	}
}
