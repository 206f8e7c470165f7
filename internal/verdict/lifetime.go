package verdict

import (
	"crypto/x509"
	"time"
)

// LateFrom is when less than a tenth of a certificate's lifetime is left. A
// kubelet that rotates its certificate requests the next one at a random time
// when 70 to 90 percent have passed (client-go's certificate manager), so beyond
// that it is overdue.
func LateFrom(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 10)
}
