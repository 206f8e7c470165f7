//go:build !unix

package controlplane

import "errors"

func (*process) pause() error { return errors.ErrUnsupported }

func (*process) resume() error { return errors.ErrUnsupported }
