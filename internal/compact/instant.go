package compact

import "time"

// Instant is a time in nanoseconds since this process began, by the clock that
// nobody sets, for as far as 292 years; a third of a time.Time. The zero Instant,
// which is before anything is looked at, is none.
type Instant int64

var began = time.Now()

// InstantOf a time; a time.Time that was never set is none. Where t has a
// monotonic reading, no step of the wall clock moves the Instant; what it reads by
// the wall clock is then not to be compared with times from elsewhere.
func InstantOf(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.Sub(began))
}

// Time that it is; the zero time.Time for none.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return began.Add(time.Duration(i))
}
