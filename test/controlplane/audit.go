package controlplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// AuditEvent is one request as the API server's audit log has it. Fields that a
// request does not have are empty.
type AuditEvent struct {
	Time        time.Time // when the request arrived
	Stage       string    // ResponseComplete; a watch or other stream has ResponseStarted before; Panic
	User        string    // the authenticated user
	Verb        string
	RequestURI  string
	APIGroup    string // empty for the core group
	Resource    string
	Subresource string
	Namespace   string
	Name        string
	Code        int    // HTTP status; 0 where none was sent
	Message     string // the API server's words where it refused
	UserAgent   string
}

// AuditEvents reads the audit log up to now, in the order in which responses
// were given, over all runs of the API server. An event may come a moment after
// its response. It errs without Options.Audit, and when a line is not an event;
// a last line that is being written is left out.
func (c *ControlPlane) AuditEvents() ([]AuditEvent, error) {
	if !c.audit {
		return nil, errors.New("read audit log: Options.Audit was not set")
	}
	log, err := os.ReadFile(c.path(auditLog))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	var events []AuditEvent
	for line := range bytes.Lines(log) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var logged loggedEvent
		if err := json.Unmarshal(line, &logged); err != nil {
			return nil, fmt.Errorf("read audit log: event %d: %w", len(events)+1, err)
		}
		events = append(events, logged.event())
	}
	return events, nil
}

// loggedEvent is the part of an Event of audit.k8s.io/v1 that AuditEvent has.
type loggedEvent struct {
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
	Stage                    string    `json:"stage"`
	RequestURI               string    `json:"requestURI"`
	Verb                     string    `json:"verb"`
	UserAgent                string    `json:"userAgent"`
	User                     struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
}

func (l loggedEvent) event() AuditEvent {
	return AuditEvent{
		Time:        l.RequestReceivedTimestamp,
		Stage:       l.Stage,
		User:        l.User.Username,
		Verb:        l.Verb,
		RequestURI:  l.RequestURI,
		APIGroup:    l.ObjectRef.APIGroup,
		Resource:    l.ObjectRef.Resource,
		Subresource: l.ObjectRef.Subresource,
		Namespace:   l.ObjectRef.Namespace,
		Name:        l.ObjectRef.Name,
		Code:        l.ResponseStatus.Code,
		Message:     l.ResponseStatus.Message,
		UserAgent:   l.UserAgent,
	}
}
