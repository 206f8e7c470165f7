package cli_test

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
)

// What the environment says about garbage stands; what a sweep changes is undone.
func TestTuneForASweep(t *testing.T) {
	present := func() [2]int64 {
		percent := debug.SetGCPercent(100)
		debug.SetGCPercent(percent)
		return [2]int64{int64(percent), debug.SetMemoryLimit(-1)}
	}
	for _, variable := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Setenv(variable, "") // restored in the end
		if err := os.Unsetenv(variable); err != nil {
			t.Fatal(err)
		}
	}
	before := present()
	undo := cli.TuneForASweep()
	if during := present(); during[0] <= before[0] || during[1] >= before[1] {
		t.Errorf("%v before, %v in a sweep", before, during)
	}
	undo()
	if after := present(); after != before {
		t.Errorf("%v before, %v after", before, after)
	}
	for _, variable := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, "off")
			defer cli.TuneForASweep()()
			if during := present(); during != before {
				t.Errorf("%v before, %v in a sweep", before, during)
			}
		})
	}
}
